"""CreatePartitions: more partitions for topics that exist."""

from __future__ import annotations

from collections import Counter

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.one_by_one import Progress
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.decisions.topics import create_partitions
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from ottla.server.authorization.operations import ALTER
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: CreatePartitionsRequest, context: RequestContext
) -> Reply[CreatePartitionsResponse]:
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
    progress: Progress[CreatePartitionsTopicResult] = Progress()

    def decide(state: ControlState) -> Outcome[CreatePartitionsResponse | None]:
        records, results = create_partitions(
            state,
            wanted,
            components.world.rng,
            validate_only=request.validate_only,
            progress=progress,
            charge=quota.charge,
        )
        if results is None:
            return Outcome(records, None)
        return Outcome(records, CreatePartitionsResponse(throttle_time_ms=quota.wait_ms(), results=rejected + results))

    return components.controller.write_in_turns(decide)
