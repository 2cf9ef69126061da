"""CreateTopics: each topic is created on its own, and has its own error.

Duplicates in the request, the metadata log's own topic, and topics that the caller may not create are rejected here; the
others are decided in decisions/topics.py. v5 lists the configs of each new topic, if the caller may read them.
"""

from __future__ import annotations

from collections import Counter

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.one_by_one import Progress
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.topics import create_topics
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.topic_names import CLUSTER_METADATA_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.server.authorization.operations import CREATE, DESCRIBE_CONFIGS
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: CreateTopicsRequest, context: RequestContext
) -> Reply[CreateTopicsResponse]:
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
            rejected.append(_rejected(name, ErrorCode.INVALID_REQUEST, "Duplicate topic name."))
        elif name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            rejected.append(_rejected(name, ErrorCode.INVALID_REQUEST, message))
        elif name not in creatable:
            rejected.append(_rejected(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed."))
    wanted = [topic for topic in request.topics if topic.name in creatable]

    quota = components.mutation_quota(context, strict_since=6)
    progress: Progress[CreatableTopicResult] = Progress()

    def decide(state: ControlState) -> Outcome[CreateTopicsResponse | None]:
        records, results = create_topics(
            state,
            wanted,
            components.configs,
            components.world.rng,
            validate_only=request.validate_only,
            describable=describable,
            progress=progress,
            charge=quota.charge,
        )
        if results is None:
            return Outcome(records, None)
        return Outcome(records, CreateTopicsResponse(throttle_time_ms=quota.wait_ms(), topics=results + rejected))

    return components.controller.write_in_turns(decide)


def _rejected(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)
