"""Streams groups (KIP-1071): the heartbeats of their members, and their description."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from ottla.broker.api.groups import check_streams_groups, client_of, describe_modern_groups
from ottla.broker.authorization import require
from ottla.broker.components import BrokerComponents
from ottla.broker.groups.group_descriptions import STREAMS_GROUPS
from ottla.broker.groups.streams.streams_step import StreamsResult
from ottla.broker.groups.streams.topology import StatusCode
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.streams_group_describe import (
    DescribedGroup,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, CREATE, DESCRIBE, GROUP, READ, TOPIC
from ottla.server.network.context import Answer, RequestContext, then

#: The status names this many of the topics that could not be created.
NAMED_ERRORS_MAX = 3


def streams_group_heartbeat(
    broker: BrokerComponents, request: StreamsGroupHeartbeatRequest, context: RequestContext
) -> Answer[StreamsGroupHeartbeatResponse]:
    """StreamsGroupHeartbeat (88): members of streams groups join, live, reconcile and leave (KIP-1071).

    v1 adds fields of Kafka 4.4 that say what is not asked for.
    READ on the group, and DESCRIBE on each topic of a topology that a member brings.
    Internal topics that are missing are created by the controller. The response does not wait for that: it has the status
    MISSING_INTERNAL_TOPICS, with the reason if the client may not create topics, or if creating them failed a moment ago.

    Errors:
        STREAMS_INVALID_TOPOLOGY  a topic of the topology is internal to Kafka, or no topic may have its name
    """
    check_streams_groups(broker)
    require(broker, context, READ, GROUP, request.group_id)
    check_topic_names(request, broker.internal_topics)
    if broker.authorizer.enabled:
        for name in topics_of(request):
            require(broker, context, DESCRIBE, TOPIC, name)
    decided = broker.groups.streams_heartbeat(request, client_of(broker, context))
    return then(decided, partial(_create_missing, broker, context))


def topics_of(request: StreamsGroupHeartbeatRequest) -> Iterator[str]:
    """Return all topics of the request's topology, each once."""
    seen: dict[str, None] = {}
    for subtopology in () if request.topology is None else request.topology.subtopologies:
        seen |= dict.fromkeys(subtopology.source_topics)
        seen |= dict.fromkeys(subtopology.repartition_sink_topics)
        seen |= dict.fromkeys(topic.name for topic in subtopology.repartition_source_topics)
        seen |= dict.fromkeys(topic.name for topic in subtopology.state_changelog_topics)
    return iter(seen)


def check_topic_names(request: StreamsGroupHeartbeatRequest, internal_topics: Collection[str]) -> None:
    """Raise KafkaError STREAMS_INVALID_TOPOLOGY for topics that no application may have."""
    names = list(topics_of(request))
    internal = [name for name in names if name in internal_topics]
    if internal:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY,
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.",
        )
    invalid = [name for name in names if not is_valid_topic_name(name)]
    if invalid:
        raise KafkaError(
            ErrorCode.STREAMS_INVALID_TOPOLOGY, f"Topic names {','.join(invalid)} are not valid topic names."
        )


def _create_missing(
    broker: BrokerComponents, context: RequestContext, decided: StreamsResult
) -> StreamsGroupHeartbeatResponse:
    response, missing = decided
    if not missing:
        return response
    allows = broker.authorizer.allows
    refused = []
    if not allows(context, CREATE, CLUSTER, CLUSTER_NAME):
        refused = [name for name in missing if not allows(context, CREATE, TOPIC, name)]
    if refused:
        _add_detail(response, f"Unauthorized to CREATE on topics {', '.join(refused)}.")
        return response
    broker.streams_topics.create(missing, 2 * response.heartbeat_interval_ms, context)
    errors = [f"{name} ({message})" for name, message in broker.streams_topics.errors(missing).items()]
    if errors:
        more = len(errors) - NAMED_ERRORS_MAX
        text = ", ".join(errors[:NAMED_ERRORS_MAX]) + (f" and {more} more" if more > 0 else "")
        _add_detail(response, f"Creation failed: {text}.")
    return response


def _add_detail(response: StreamsGroupHeartbeatResponse, detail: str) -> None:
    for status in response.status or ():
        if status.status_code == StatusCode.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {detail}"


#: A value of the field topology_description_status.
NOT_STORED = 1


def streams_group_describe(
    broker: BrokerComponents, request: StreamsGroupDescribeRequest, context: RequestContext
) -> Answer[StreamsGroupDescribeResponse]:
    """StreamsGroupDescribe (89): epochs, topology, members and tasks of streams groups (KIP-1071).

    v1 the assignor's name, and descriptions of topologies (KIP-1331), which are not stored here: the response says so.
    """
    check_streams_groups(broker)

    def shape(groups: list[DescribedGroup]) -> StreamsGroupDescribeResponse:
        if request.include_topology_description:
            for group in groups:
                if not group.error_code:
                    group.topology_description_status = NOT_STORED
        return StreamsGroupDescribeResponse(groups=groups)

    return then(describe_modern_groups(broker, context, request, STREAMS_GROUPS), shape)
