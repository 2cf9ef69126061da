"""The APIs of a broker's listeners, one row each, with all facts that Ottla needs to serve the API.

A row has the handler and who may use the API, as Kafka's KafkaApis asks its authorizer; or it says that the request is forwarded
to the active controller, which authorizes it for the client. Messages, versions and listeners of each API are Kafka's
and are in protocol/api.py. ApiVersions is answered by the server from exactly these rows, and needs no permission.
A request that is one call is answered in its row or above the table; a handler that does more is in api/.
CONTRIBUTING.md has the steps of a new API; tests/rules name what is missing.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.api import (
    _older_records,
    cluster_description,
    delete_records,
    describe_client_quotas,
    describe_delegation_token,
    find_coordinator,
    group_offsets,
    groups,
    log_dirs,
    log_queries,
    metadata,
    offset_commits,
    share_acknowledge,
    share_fetch,
    share_group_offsets,
    streams_groups,
    telemetry,
    transactions,
    write_txn_markers,
)
from ottla.broker.api._own_configs import forward_checked
from ottla.broker.api.groups import (
    asker_of,
    check_consumer_groups,
    check_share_groups,
    client_of,
    describe_modern_groups,
)
from ottla.broker.api_row import IN_HANDLER, OPEN, Answered, Forwarded
from ottla.broker.authorization import (
    Each,
    Every,
    InHandler,
    Whole,
    describe_config_resource,
    on_cluster,
    on_each_group,
    on_each_transactional_id,
    on_group,
    on_topic,
    on_topic_or_id,
    on_transactional_id,
    read_valid_topic,
    sync_with_protocol,
)
from ottla.broker.components import BrokerComponents
from ottla.broker.encoded_metadata import metadata_encoder
from ottla.broker.fetch import handler as fetch
from ottla.broker.fetch.repeated import RepeatedFetches
from ottla.broker.groups.group_descriptions import CONSUMER_GROUPS, SHARE_GROUPS
from ottla.broker.long_work import (
    COMMITS_AT_ONCE,
    RESOURCES_AT_ONCE,
    ManyNames,
    config_resource,
    topics,
)
from ottla.broker.produce import handler as produce
from ottla.broker.produce.repeated import RepeatedProduces
from ottla.controller.metadata.describe_configs import describe_configs
from ottla.controller.metadata.scram import describe_scram_credentials
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.messages.streams_group_topology_description_update import (
    StreamsGroupTopologyDescriptionUpdateResponse,
)
from ottla.protocol.schema import parse_versions
from ottla.server.authorization.authorizer import describe_acls
from ottla.server.authorization.operations import ALTER, CLUSTER_ACTION, DELETE, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE
from ottla.server.network.context import Answer, RequestContext, then

_GROUP_MEMBER = (Whole((on_group(READ),)),)
_SUBSCRIBER = (*_GROUP_MEMBER, Every("subscribed_topic_names", DESCRIBE))
_EACH_GROUP = (Each("group_ids", "groups", on_each_group(DESCRIBE)), InHandler())
#: Requests of other brokers.
_BROKER = (Whole((on_cluster(CLUSTER_ACTION),)),)


def _share_state(broker: BrokerComponents, request: Any, context: RequestContext) -> Answer[Any]:
    """Answer the APIs of the share coordinator, which share partition leaders and group coordinators use (KIP-932)."""
    check_share_groups(broker)
    return broker.share_coordinator.respond(request)


def _consumer_heartbeat(
    broker: BrokerComponents, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Answer[ConsumerGroupHeartbeatResponse]:
    check_consumer_groups(broker)
    return broker.groups.consumer_heartbeat(request, client_of(broker, context))


def _share_heartbeat(
    broker: BrokerComponents, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Answer[ShareGroupHeartbeatResponse]:
    check_share_groups(broker)
    return broker.share_groups.heartbeat(request, client_of(broker, context))


def _consumer_groups(
    broker: BrokerComponents, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Answer[ConsumerGroupDescribeResponse]:
    check_consumer_groups(broker)
    described = describe_modern_groups(broker, context, request, CONSUMER_GROUPS)
    return then(described, lambda groups: ConsumerGroupDescribeResponse(groups=groups))


def _share_groups(
    broker: BrokerComponents, request: ShareGroupDescribeRequest, context: RequestContext
) -> Answer[ShareGroupDescribeResponse]:
    check_share_groups(broker)
    described = describe_modern_groups(broker, context, request, SHARE_GROUPS)
    return then(described, lambda groups: ShareGroupDescribeResponse(groups=groups))


def _delete_groups(
    broker: BrokerComponents, request: DeleteGroupsRequest, context: RequestContext
) -> Answer[DeleteGroupsResponse]:
    """Delete groups. One that is named twice is deleted, and answered, once."""
    deleted = broker.group_deletion.delete(list(dict.fromkeys(request.groups_names)), asker_of(context))
    return then(deleted, lambda results: DeleteGroupsResponse(results=results))


def _no_topology_descriptions(
    broker: BrokerComponents, request: object, context: RequestContext
) -> StreamsGroupTopologyDescriptionUpdateResponse:
    """Descriptions of topologies are for a plug-in of Java (KIP-1331), which a node here cannot have.

    Members send them only when a response to StreamsGroupHeartbeat asks for them, which no node here does.
    """
    return StreamsGroupTopologyDescriptionUpdateResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="The broker has no streams group topology description plugin configured.",
    )


ROUTES: tuple[Answered | Forwarded, ...] = (
    Answered(ApiKey.PRODUCE, produce.handle, IN_HANDLER, fast_path=RepeatedProduces, around=_older_records.produce),
    Answered(ApiKey.FETCH, fetch.handle, IN_HANDLER, fast_path=RepeatedFetches, around=_older_records.fetch),
    Answered(ApiKey.LIST_OFFSETS, log_queries.list_offsets, (Each("topics", "topics", on_topic(DESCRIBE)),)),
    Answered(ApiKey.METADATA, metadata.handle, IN_HANDLER, encoder=metadata_encoder),
    Answered(
        ApiKey.OFFSET_COMMIT,
        offset_commits.offset_commit,
        (Whole((on_group(READ),)), Each("topics", "topics", on_topic_or_id(READ))),
        names=topics(at_once=COMMITS_AT_ONCE),
    ),
    Answered(
        ApiKey.OFFSET_FETCH,
        group_offsets.offset_fetch,
        IN_HANDLER,
        names=ManyNames("groups", "groups", key=None, inside=("topics", "topics")),
    ),
    Answered(
        ApiKey.FIND_COORDINATOR,
        find_coordinator.handle,
        IN_HANDLER,
        names=ManyNames("coordinator_keys", "coordinators"),
    ),
    Answered(ApiKey.JOIN_GROUP, groups.join_group, _GROUP_MEMBER),
    # v3 group_instance_id (KIP-345)
    Answered(ApiKey.HEARTBEAT, lambda broker, request, context: broker.groups.heartbeat(request), _GROUP_MEMBER),
    Answered(ApiKey.LEAVE_GROUP, groups.leave_group, _GROUP_MEMBER),
    Answered(
        ApiKey.SYNC_GROUP,
        groups.sync_group,
        (
            Whole((on_group(READ),), versions=parse_versions("0-4")),
            Whole((sync_with_protocol,), versions=parse_versions("5+")),
        ),
    ),
    Answered(
        ApiKey.DESCRIBE_GROUPS,
        groups.describe_groups,
        (Each("groups", "groups", on_each_group(DESCRIBE)),),
        names=ManyNames("groups", "groups"),
    ),
    Answered(ApiKey.LIST_GROUPS, groups.list_groups, IN_HANDLER),
    # v1 regular expressions, and member ids made by clients (KIP-1082)
    Answered(ApiKey.CONSUMER_GROUP_HEARTBEAT, _consumer_heartbeat, _SUBSCRIBER),
    # v1 types of members (KIP-1099)
    Answered(ApiKey.CONSUMER_GROUP_DESCRIBE, _consumer_groups, _EACH_GROUP, names=ManyNames("group_ids", "groups")),
    Answered(ApiKey.STREAMS_GROUP_HEARTBEAT, streams_groups.streams_group_heartbeat, IN_HANDLER),
    Answered(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        streams_groups.streams_group_describe,
        _EACH_GROUP,
        names=ManyNames("group_ids", "groups"),
    ),
    Forwarded(ApiKey.CREATE_TOPICS),
    Forwarded(ApiKey.DELETE_TOPICS),
    Answered(
        ApiKey.DELETE_RECORDS, delete_records.handle, (Each("topics", "topics", on_topic(DELETE)),), names=topics()
    ),
    Answered(ApiKey.INIT_PRODUCER_ID, transactions.init_producer_id, IN_HANDLER),
    Answered(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        log_queries.offset_for_leader_epoch,
        (Each("topics", "topics", on_topic(DESCRIBE, "topic"), unless=on_cluster(CLUSTER_ACTION)),),
        names=topics(),
    ),
    Answered(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        transactions.add_partitions_to_txn,
        IN_HANDLER,
        names=ManyNames("transactions", "results_by_transaction", key=None),
    ),
    Answered(
        ApiKey.ADD_OFFSETS_TO_TXN,
        transactions.add_offsets_to_txn,
        (Whole((on_transactional_id(WRITE),)), Whole((on_group(READ),))),
    ),
    Answered(ApiKey.END_TXN, transactions.end_txn, (Whole((on_transactional_id(WRITE),)),)),
    Answered(
        ApiKey.WRITE_TXN_MARKERS, write_txn_markers.handle, (Whole((on_cluster(ALTER), on_cluster(CLUSTER_ACTION))),)
    ),
    Answered(
        ApiKey.TXN_OFFSET_COMMIT,
        offset_commits.txn_offset_commit,
        (
            Whole((on_transactional_id(WRITE),)),
            Whole((on_group(READ),)),
            Each("topics", "topics", on_topic_or_id(READ)),
        ),
        names=topics(at_once=COMMITS_AT_ONCE),
    ),
    Answered(
        ApiKey.DESCRIBE_ACLS,
        lambda broker, request, context: describe_acls(broker.authorizer, request),
        (Whole((on_cluster(DESCRIBE),)),),
    ),
    Forwarded(ApiKey.CREATE_ACLS),
    Forwarded(ApiKey.DELETE_ACLS),
    Answered(
        ApiKey.DESCRIBE_CONFIGS,
        lambda broker, request, context: describe_configs(broker.metadata.image, broker.configs, request),
        (Each("resources", "results", describe_config_resource, has_message=True),),
        names=ManyNames("resources", "results", RESOURCES_AT_ONCE, config_resource),
    ),
    Forwarded(ApiKey.ALTER_CONFIGS, forward_checked),
    Answered(ApiKey.ALTER_REPLICA_LOG_DIRS, log_dirs.alter_replica_log_dirs, (Whole((on_cluster(ALTER),)),)),
    Answered(ApiKey.DESCRIBE_LOG_DIRS, log_dirs.describe_log_dirs, (Whole((on_cluster(DESCRIBE),)),)),
    Forwarded(ApiKey.CREATE_PARTITIONS),
    Answered(
        ApiKey.DELETE_GROUPS,
        _delete_groups,
        (Each("groups_names", "results", on_each_group(DELETE)),),
        names=ManyNames("groups_names", "results"),
    ),
    Forwarded(ApiKey.CREATE_DELEGATION_TOKEN),
    Forwarded(ApiKey.RENEW_DELEGATION_TOKEN),
    Forwarded(ApiKey.EXPIRE_DELEGATION_TOKEN),
    Answered(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_delegation_token.handle, IN_HANDLER),
    Forwarded(ApiKey.ELECT_LEADERS),
    Forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, forward_checked),
    Forwarded(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    Forwarded(ApiKey.LIST_PARTITION_REASSIGNMENTS),
    Answered(ApiKey.OFFSET_DELETE, group_offsets.offset_delete, IN_HANDLER),
    Forwarded(ApiKey.DESCRIBE_QUORUM),
    Answered(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas.handle, (Whole((on_cluster(DESCRIBE_CONFIGS),)),)),
    Forwarded(ApiKey.ALTER_CLIENT_QUOTAS),
    Answered(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        lambda broker, request, context: describe_scram_credentials(broker.metadata.image.scram, request),
        (Whole((on_cluster(DESCRIBE),)),),
    ),
    Forwarded(ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    Forwarded(ApiKey.UPDATE_FEATURES),
    Answered(ApiKey.DESCRIBE_CLUSTER, cluster_description.describe_cluster, IN_HANDLER),
    Answered(
        ApiKey.DESCRIBE_PRODUCERS,
        log_queries.describe_producers,
        (Each("topics", "topics", read_valid_topic),),
        names=topics(partitions="partition_indexes"),
    ),
    Forwarded(ApiKey.UNREGISTER_BROKER),
    Answered(
        ApiKey.DESCRIBE_TRANSACTIONS,
        transactions.describe_transactions,
        (Each("transactional_ids", "transaction_states", on_each_transactional_id(DESCRIBE)), InHandler()),
        names=ManyNames("transactional_ids", "transaction_states"),
    ),
    Answered(ApiKey.LIST_TRANSACTIONS, transactions.list_transactions, IN_HANDLER),
    Answered(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, telemetry.get_telemetry_subscriptions, OPEN),
    Answered(ApiKey.PUSH_TELEMETRY, telemetry.push_telemetry, OPEN),
    Answered(
        ApiKey.LIST_CONFIG_RESOURCES,
        cluster_description.list_config_resources,
        (Whole((on_cluster(DESCRIBE_CONFIGS),)),),
    ),
    Answered(ApiKey.DESCRIBE_TOPIC_PARTITIONS, cluster_description.describe_topic_partitions, IN_HANDLER),
    Answered(ApiKey.SHARE_FETCH, share_fetch.handle, IN_HANDLER),
    Answered(ApiKey.SHARE_ACKNOWLEDGE, share_acknowledge.share_acknowledge, IN_HANDLER),
    Forwarded(ApiKey.ADD_RAFT_VOTER),
    Forwarded(ApiKey.REMOVE_RAFT_VOTER),
    Forwarded(ApiKey.UNREGISTER_CONTROLLER),
    Answered(ApiKey.SHARE_GROUP_HEARTBEAT, _share_heartbeat, _SUBSCRIBER),
    Answered(ApiKey.SHARE_GROUP_DESCRIBE, _share_groups, _EACH_GROUP, names=ManyNames("group_ids", "groups")),
    Answered(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        share_group_offsets.describe_share_group_offsets,
        IN_HANDLER,
        names=ManyNames("groups", "groups", key=None, inside=("topics", "topics")),
    ),
    Answered(ApiKey.ALTER_SHARE_GROUP_OFFSETS, share_group_offsets.alter_share_group_offsets, IN_HANDLER),
    Answered(ApiKey.DELETE_SHARE_GROUP_OFFSETS, share_group_offsets.delete_share_group_offsets, IN_HANDLER),
    Answered(ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE, _no_topology_descriptions, _GROUP_MEMBER),
    Answered(ApiKey.INITIALIZE_SHARE_GROUP_STATE, _share_state, _BROKER, names=topics("results")),
    Answered(ApiKey.READ_SHARE_GROUP_STATE, _share_state, _BROKER, names=topics("results")),
    # v1 adds the number of finished deliveries (KIP-1226)
    Answered(ApiKey.WRITE_SHARE_GROUP_STATE, _share_state, _BROKER, names=topics("results")),
    Answered(ApiKey.DELETE_SHARE_GROUP_STATE, _share_state, _BROKER, names=topics("results")),
    # v1 adds the number of finished deliveries (KIP-1226)
    Answered(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, _share_state, _BROKER, names=topics("results")),
)
