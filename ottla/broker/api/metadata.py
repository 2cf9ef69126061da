"""Metadata (3): brokers and topics as the client's listener sees them; creates topics on first mention if allowed.

A client needs DESCRIBE on each topic. A rejection does not disclose whether there is such a topic:

all topics          those that may not be described are left out
named               TOPIC_AUTHORIZATION_FAILED with the name, whether or not there is such a topic
by id               TOPIC_AUTHORIZATION_FAILED with the id, for ids are no secret (KIP-516), and without the name
to be created       CREATE on the cluster or on the topic, else TOPIC_AUTHORIZATION_FAILED

The controller creates topics. The response waits a moment for it (AUTO_CREATE_WAIT_MS), because a client that gets
UNKNOWN_TOPIC_OR_PARTITION sleeps for its retry backoff, which is longer. If the creation takes longer than that moment, the
client gets the error.

v0 an empty list asks for all topics, v1+ null does · v1 controller_id, rack, is_internal · v2 cluster_id · v4 allow_auto_topic_creation
v5 offline_replicas · v7 leader_epoch · v8-10 authorized operations · v10 topic ids in answers, v12 in requests · v13 top-level error.

Errors:
    INVALID_REQUEST       a topic id, or a null name, before v12
    UNKNOWN_SERVER_ERROR  the topics could not be encoded
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from ottla.broker.api._metadata_topics import TopicsOfMetadata, controller_id, take_out_denied, with_denied
from ottla.broker.authorization import operations_on_cluster
from ottla.broker.components import BrokerComponents
from ottla.broker.encoded_metadata import (
    PARTITIONS_PER_TURN,
    EncodedMetadata,
    Metadata,
    Rows,
    View,
    encode_in_pieces,
    encode_topic,
    rows_of,
)
from ottla.controller.metadata.topic_names import is_valid_topic_name
from ottla.controller.metadata.topics import TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from ottla.protocol.messages.shared_structs import NodeEndpoint
from ottla.protocol.schema import ZERO_UUID
from ottla.server.authorization.operations import DESCRIBE, TOPIC
from ottla.server.network.context import Reply, RequestContext

#: Creation takes one commit of the metadata log: a millisecond or two here, tens over three machines.
AUTO_CREATE_WAIT_MS = 1_000


def handle(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> Reply[Metadata]:
    _check(request, context.api_version)
    if context.api_version == 0 and not request.topics:
        request.topics = None
    if request.topics is not None:
        request.topics = _distinct(request.topics)
    denied = take_out_denied(broker, request, context) if broker.authorizer.enabled and request.topics else []
    response = _serve(broker, request, context)
    return response.then(partial(with_denied, denied, context.api_version)) if denied else response


def _distinct(topics: Sequence[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    """Return each topic once. A request that has an id is one for ids: as in Kafka, its names do not count (KIP-516)."""
    ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    if ids:
        return [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in ids]
    return list({topic.name: topic for topic in topics}.values())


def _serve(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> Reply[Metadata]:
    missing = _creatable(broker, request, context)
    if not missing:
        if len(broker.metadata.image.cluster.brokers) == 1:
            return _answer_now(broker, request, context)
        return _answer_in_cluster(broker, request, context)
    reply: Reply[Metadata] = Reply()
    finish = partial(answer, broker, request, context, reply)
    reply.on_cancel = broker.topic_creation.create(missing, AUTO_CREATE_WAIT_MS, finish, context)
    return reply


def _answer_in_cluster(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> Reply[Metadata]:
    delayed = broker.delayed_metadata
    names_lost = partial(names_lost_leader, broker, request)
    if names_lost():
        return delayed.delay(names_lost, partial(answer, broker, request, context))
    if delayed.is_old(context.connection) and names_any(broker, request, broker.replicas.fetchers.by_leader):
        return delayed.settle(names_lost, partial(answer, broker, request, context))
    return _answer_now(broker, request, context)


def names_lost_leader(broker: BrokerComponents, request: MetadataRequest) -> bool:
    """Return True if the response would send the client to a broker that has just died (lost_leaders.py)."""
    lost = {
        node_id
        for node_id, registered in broker.metadata.image.cluster.brokers.items()
        if not registered.fenced and broker.replicas.fetchers.has_just_lost(node_id)
    }
    return names_any(broker, request, lost)


def names_any(broker: BrokerComponents, request: MetadataRequest, leaders: Collection[int]) -> bool:
    """Return True if the response names one of these brokers as a leader."""
    if not leaders or request.topics is None:
        return bool(leaders)
    return any(
        partition.leader in leaders for image in _named(broker, request) for partition in image.partitions.values()
    )


def _named(broker: BrokerComponents, request: MetadataRequest) -> Iterator[TopicImage]:
    """Yield the topics of the request that exist."""
    topics = broker.metadata.image.topics
    for asked in request.topics or ():
        image = topics.by_id(asked.topic_id) if asked.name is None else topics.by_name(asked.name)
        if image is not None:
            yield image


def _check(request: MetadataRequest, api_version: int) -> None:
    if api_version < 12 and any(t.name is None or t.topic_id != ZERO_UUID for t in request.topics or ()):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"topic ids cannot be asked for in version {api_version}")


def _creatable(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> list[str]:
    if not (request.allow_auto_topic_creation and broker.configs["auto.create.topics.enable"]) or not request.topics:
        return []
    topics = broker.metadata.image.topics
    return [
        topic.name
        for topic in request.topics
        if topic.name and topic.name not in topics and is_valid_topic_name(topic.name)
    ]


def _answer_now(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> Reply[Metadata]:
    reply: Reply[Metadata] = Reply()
    answer(broker, request, context, reply)
    return reply


def answer(broker: BrokerComponents, request: MetadataRequest, context: RequestContext, reply: Reply[Metadata]) -> None:
    """Complete the response. If many of its topics are not encoded yet, it is completed in a later turn."""
    is_long = (
        request.topics is None or sum(len(image.partitions) for image in _named(broker, request)) > PARTITIONS_PER_TURN
    )
    if is_long and not request.include_topic_authorized_operations:
        view = View(context.api_version, context.connection.listener_name)
        broker.all_topics.when_encoded(view, partial(_complete, broker, request, context, reply))
        return
    response = _head(broker, request, context)
    builder = TopicsOfMetadata(broker, context.api_version, context.connection.listener_name)
    if request.topics is None:
        visible = _visible(broker, context)
        response.topics = [builder.topic(image) for image in broker.metadata.image.topics if visible(image.name)]
    else:
        response.topics = [builder.asked(asked.name, asked.topic_id) for asked in request.topics]
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None:
                operations = broker.authorizer.authorized_operations(context, TOPIC, topic.name)
                topic.topic_authorized_operations = operations
    reply.complete(response)


def _complete(
    broker: BrokerComponents,
    request: MetadataRequest,
    context: RequestContext,
    reply: Reply[Metadata],
    rows: Rows | None,
) -> None:
    if reply.cancelled:
        return
    if rows is None:
        reply.complete(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        return
    if request.topics is not None:
        rows = _asked_rows(broker, request, context, rows)
    response = EncodedMetadata(_head(broker, request, context), rows)
    if broker.authorizer.enabled and request.topics is None:
        response = response.only(_visible(broker, context))
    reply.complete(response)


def _visible(broker: BrokerComponents, context: RequestContext) -> Callable[[str], bool]:
    return lambda name: broker.authorizer.allows(context, DESCRIBE, TOPIC, name)


def _asked_rows(broker: BrokerComponents, request: MetadataRequest, context: RequestContext, rows: Rows) -> Rows:
    """Return the rows of the requested topics."""
    builder = TopicsOfMetadata(broker, context.api_version, context.connection.listener_name)
    encoded, topics = dict(rows.topics), broker.metadata.image.topics
    found: list[tuple[str, bytes]] = []
    for asked in request.topics or ():
        image = topics.by_id(asked.topic_id) if asked.name is None else topics.by_name(asked.name)
        known = image and encoded.get(image.name)
        row = known or encode_topic(builder.asked(asked.name, asked.topic_id), context.api_version)
        found.append((asked.name or "", row))
    return rows_of(found)


def encoder_of_topics(broker: BrokerComponents, view: View) -> Callable[[TopicImage], Iterator[bytes]]:
    builder = TopicsOfMetadata(broker, view.version, view.listener)

    def encoded(image: TopicImage) -> Iterator[bytes]:
        count = len(image.partitions)
        if count <= PARTITIONS_PER_TURN:
            return iter((encode_topic(builder.topic(image), view.version),))
        return encode_in_pieces(builder.head(image), count, builder.partitions_in_pieces(image), view.version)

    return encoded


def _head(broker: BrokerComponents, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Return the response without its topics."""
    metadata = broker.metadata
    addresses = metadata.node_endpoints(metadata.image.cluster.brokers, context)
    live = metadata.live(context.connection.listener_name)
    listed = addresses + _just_fenced(broker, context)
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=a.node_id, host=a.host, port=a.port, rack=a.rack) for a in listed],
        cluster_id=metadata.cluster_id,
        controller_id=controller_id(broker, live),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = operations_on_cluster(broker, context)
    return response


def _just_fenced(broker: BrokerComponents, context: RequestContext) -> list[NodeEndpoint]:
    registered = broker.metadata.image.cluster.brokers
    found = (
        broker.metadata.address(registered[node_id], context)
        for node_id in broker.delayed_metadata.just_fenced()
        if node_id in registered
    )
    return [address for address in found if address is not None]
