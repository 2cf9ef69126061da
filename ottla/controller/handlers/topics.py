"""CreateTopics, CreatePartitions, DeleteTopics: each topic is decided on its own, and has its own error (decisions/topics.py)."""

from __future__ import annotations

from collections import Counter

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.decisions.topics import create_partitions, create_topics, delete_topics, not_found
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.schema import ZERO_UUID
from ottla.server.authorization.operations import ALTER, CREATE, DELETE, DESCRIBE, DESCRIBE_CONFIGS
from ottla.server.network.context import Reply, RequestContext


def handle_create(
    components: ControllerComponents, request: CreateTopicsRequest, context: RequestContext
) -> Reply[CreateTopicsResponse]:
    """CreateTopics: duplicates in the request, the metadata log's own topic, and topics that the caller may not create are rejected
    here; the others are decided. v5 lists the configs of each new topic, if the caller may read them.
    """
    counts = Counter(topic.name for topic in request.topics)
    names = [name for name, count in counts.items() if count == 1 and name != CLUSTER_METADATA_TOPIC]
    if components.allows_on_cluster(context, CREATE):
        creatable = frozenset(names)
    else:
        creatable = components.allowed_topics(context, CREATE, names)
    describable = components.allowed_topics(context, DESCRIBE_CONFIGS, names)
    rejected = []
    for name, count in counts.items():
        if count > 1:
            rejected.append(_uncreated(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            rejected.append(_uncreated(name, ErrorCode.INVALID_REQUEST, message))
        elif name not in creatable:
            rejected.append(_uncreated(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
    wanted = [topic for topic in request.topics if topic.name in creatable]

    quota = components.mutation_quota(context, strict_since=6)

    def decide(state: ControlState) -> Decision[CreateTopicsResponse]:
        records, results = yield from create_topics(
            state,
            wanted,
            components.configs,
            components.world.rng,
            validate_only=request.validate_only,
            describable=describable,
            charge=quota.charge,
        )
        return Outcome(records, CreateTopicsResponse(throttle_time_ms=quota.wait_ms(), topics=results + rejected))

    return components.controller.write_in_turns(in_turns(decide))


def _uncreated(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)


def handle_create_partitions(
    components: ControllerComponents, request: CreatePartitionsRequest, context: RequestContext
) -> Reply[CreatePartitionsResponse]:
    """CreatePartitions: more partitions for topics that exist."""
    counts = Counter(topic.name for topic in request.topics)
    names = [name for name, count in counts.items() if count == 1]
    alterable = components.allowed_topics(context, ALTER, names)
    rejected = [
        CreatePartitionsTopicResult(
            name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name."
        )
        for name, count in counts.items()
        if count > 1
    ]
    rejected += [
        CreatePartitionsTopicResult(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for name in names
        if name not in alterable
    ]
    wanted = [topic for topic in request.topics if topic.name in alterable]

    quota = components.mutation_quota(context, strict_since=3)

    def decide(state: ControlState) -> Decision[CreatePartitionsResponse]:
        records, results = yield from create_partitions(
            state,
            wanted,
            components.world.rng,
            validate_only=request.validate_only,
            charge=quota.charge,
        )
        return Outcome(records, CreatePartitionsResponse(throttle_time_ms=quota.wait_ms(), results=rejected + results))

    return components.controller.write_in_turns(in_turns(decide))


def handle_delete(
    components: ControllerComponents, request: DeleteTopicsRequest, context: RequestContext
) -> Reply[DeleteTopicsResponse]:
    """DeleteTopics: by name, or by id (v6+). For a topic that the caller may not describe, the error does not show whether it exists."""
    if not components.controller.settings.delete_topic_enable:
        if context.api_version < 3:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Topic deletion is disabled.")
        raise KafkaError(ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled.")
    results: list[DeletableTopicResult] = []
    names, ids = _named(request, results)
    quota = components.mutation_quota(context, strict_since=5)

    def decide(state: ControlState) -> Decision[DeleteTopicsResponse]:
        found = _found(components, context, state, names, ids, results)
        records, deleted = yield from delete_topics(state, found, quota.charge)
        return Outcome(records, DeleteTopicsResponse(throttle_time_ms=quota.wait_ms(), responses=results + deleted))

    return components.controller.write_in_turns(in_turns(decide))


def _named(request: DeleteTopicsRequest, results: list[DeletableTopicResult]) -> tuple[list[str], list[bytes]]:
    """Return the valid names and ids; duplicates, and topics with both or neither, get errors."""
    names = Counter(request.topic_names)
    ids: Counter[bytes] = Counter()
    for topic in request.topics:
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            message = "You may not specify both topic name and topic id."
            results.append(_rejected(topic.name, topic.topic_id, message))
        elif topic.name is not None:
            names[topic.name] += 1
        elif topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] += 1
        else:
            results.append(_rejected(None, ZERO_UUID, "Neither topic name nor id were specified."))
    results += [_rejected(name, ZERO_UUID, "Duplicate topic name.") for name, count in names.items() if count > 1]
    results += [_rejected(None, topic_id, "Duplicate topic id.") for topic_id, count in ids.items() if count > 1]
    return [name for name, count in names.items() if count == 1], [key for key, count in ids.items() if count == 1]


def _found(
    components: ControllerComponents,
    context: RequestContext,
    state: ControlState,
    names: list[str],
    ids: list[bytes],
    results: list[DeletableTopicResult],
) -> list[tuple[str, bytes]]:
    """Return the topics that exist and may be deleted; the others get errors."""
    topics = state.image.topics
    by_id = {topic_id: topics.by_id(topic_id) for topic_id in ids}
    asked = [*names, *(topic.name for topic in by_id.values() if topic is not None)]
    if components.allows_on_cluster(context, DELETE):
        describable = deletable = frozenset(asked)
    else:
        describable = components.allowed_topics(context, DESCRIBE, asked)
        deletable = components.allowed_topics(context, DELETE, asked)
    found: dict[bytes, str] = {}
    for topic_id, topic in by_id.items():
        if topic is None:
            results.append(not_found(None, topic_id))
        elif topic.name not in deletable:
            results.append(_forbidden(topic.name if topic.name in describable else None, topic_id))
        else:
            found[topic_id] = topic.name
    for name in names:
        name_id = topics.id_of(name)
        if name not in describable or (name_id is not None and name not in deletable):
            results.append(_forbidden(name, ZERO_UUID))
        elif name_id is None:
            results.append(not_found(name, ZERO_UUID))
        elif name_id in found:
            del found[name_id]
            message = "The provided topic name maps to an ID that was already supplied."
            results.append(_rejected(name, name_id, message))
        else:
            found[name_id] = name
    return [(name, topic_id) for topic_id, name in found.items()]


def _rejected(name: str | None, topic_id: bytes, message: str) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=message
    )


def _forbidden(name: str | None, topic_id: bytes) -> DeletableTopicResult:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code)
