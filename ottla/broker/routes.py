"""The APIs of a broker's listeners, one row each: all that Ottla has to know to serve it.

A row names the handler of handlers/ and who may use the API, as Kafka's KafkaApis asks its authorizer; or it says that the request
is forwarded to the active controller, which authorizes it for the client. Messages, versions and listeners of each API are Kafka's
and are in protocol/api.py. ApiVersions is answered by the server from exactly these rows, and needs no permission.
CONTRIBUTING.md has the steps of a new API; tests/rules name what is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.authorization import (
    add_partitions_to_txn_guard,
    consumer_group_guard,
    describe_topic_partitions_guard,
    fetch_guard,
    init_producer_id_guard,
    metadata_guard,
    offset_delete_guard,
    offset_fetch_guard,
    produce_guard,
    share_group_guard,
    share_guard,
    streams_group_guard,
)
from ottla.broker.authorization.actions import (
    describe_config_resource,
    describe_coordinator_key,
    find_share_coordinator,
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
from ottla.broker.authorization.answers import (
    cluster_operations,
    group_operations,
    only_visible_groups,
    only_visible_tokens,
    only_visible_topics,
    only_visible_transactions,
    without_messages,
)
from ottla.broker.authorization.guard import After, Each, Rules, Whole, guarded
from ottla.broker.cluster.forwarding import forward
from ottla.broker.components import BrokerComponents
from ottla.broker.encoded_metadata import metadata_encoder
from ottla.broker.fetch import handler as fetch
from ottla.broker.fetch.repeated import RepeatedFetches
from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_replica_log_dirs,
    alter_share_group_offsets,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    delete_share_group_offsets,
    delete_share_group_state,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_share_group_offsets,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    init_producer_id,
    initialize_share_group_state,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    push_telemetry,
    read_share_group_state,
    read_share_group_state_summary,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    streams_group_describe,
    streams_group_heartbeat,
    streams_group_topology_description_update,
    sync_group,
    txn_offset_commit,
    write_share_group_state,
    write_txn_markers,
)
from ottla.broker.handlers._own_configs import forward_checked
from ottla.broker.many_names import (
    RESOURCES_AT_ONCE,
    ManyNames,
    config_resource,
    in_parts,
    topics,
)
from ottla.broker.produce import handler as produce
from ottla.broker.produce.repeated import RepeatedProduces
from ottla.protocol.api import ApiKey
from ottla.protocol.ranges import parse
from ottla.server.network.connection import Connection
from ottla.server.network.context import RequestContext
from ottla.server.network.fast_path import FastPath
from ottla.server.network.route import Encode, Handler, Route
from ottla.server.security.operations import ALTER, CLUSTER_ACTION, DELETE, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE

FrameHandler = Callable[[BrokerComponents, bytes, RequestContext], Awaitable[memoryview]]
LocalHandler = Callable[[BrokerComponents, Any, RequestContext], Any]


class Answered(NamedTuple):
    """An API that the broker answers itself, for clients that `authorization` allows to use it."""

    api_key: ApiKey
    handler: LocalHandler
    authorization: Rules
    #: The encoder of an API whose responses may be encoded already.
    encoder: Callable[[int], Encode] | None = None
    #: The names in a request, if there may be many of them.
    names: ManyNames | None = None
    #: Makes the fast paths of connections, see server/network/fast_path.py.
    fast_path: Callable[[BrokerComponents], Callable[..., FastPath[Connection] | None]] | None = None


class Forwarded(NamedTuple):
    """An API of the active controller, which also authorizes the client (controller/handlers/authorization.py)."""

    api_key: ApiKey
    #: Checks a request first, and forwards it.
    checked: FrameHandler | None = None


#: The rules of an API that needs no permission, as in Kafka.
OPEN: tuple[Whole, ...] = ()

_GROUP_MEMBER = (Whole((on_group(READ),)),)
#: Requests of other brokers.
_BROKER = (Whole((on_cluster(CLUSTER_ACTION),)),)

ROUTES: tuple[Answered | Forwarded, ...] = (
    Answered(ApiKey.PRODUCE, produce.handle, produce_guard.guard, fast_path=RepeatedProduces),
    Answered(ApiKey.FETCH, fetch.handle, fetch_guard.guard, fast_path=RepeatedFetches),
    Answered(ApiKey.LIST_OFFSETS, list_offsets.handle, (Each("topics", "topics", on_topic(DESCRIBE)),)),
    Answered(ApiKey.METADATA, metadata.handle, metadata_guard.guard, encoder=metadata_encoder),
    Answered(
        ApiKey.OFFSET_COMMIT,
        offset_commit.handle,
        (Whole((on_group(READ),)), Each("topics", "topics", on_topic_or_id(READ))),
    ),
    Answered(
        ApiKey.OFFSET_FETCH,
        offset_fetch.handle,
        offset_fetch_guard.guard,
        names=ManyNames("groups", "groups", key=None, inside=("topics", "topics")),
    ),
    Answered(
        ApiKey.FIND_COORDINATOR,
        find_coordinator.handle,
        (
            After(without_messages),
            Whole((find_share_coordinator,), versions=parse("6+")),
            Whole((describe_coordinator_key,), versions=parse("0-3")),
            Each("coordinator_keys", "coordinators", describe_coordinator_key, versions=parse("4+")),
        ),
        names=ManyNames("coordinator_keys", "coordinators"),
    ),
    Answered(ApiKey.JOIN_GROUP, join_group.handle, _GROUP_MEMBER),
    Answered(ApiKey.HEARTBEAT, heartbeat.handle, _GROUP_MEMBER),
    Answered(ApiKey.LEAVE_GROUP, leave_group.handle, _GROUP_MEMBER),
    Answered(
        ApiKey.SYNC_GROUP,
        sync_group.handle,
        (
            Whole((on_group(READ),), versions=parse("0-4")),
            Whole((sync_with_protocol,), versions=parse("5+")),
        ),
    ),
    Answered(
        ApiKey.DESCRIBE_GROUPS,
        describe_groups.handle,
        (After(group_operations), Each("groups", "groups", on_each_group(DESCRIBE))),
        names=ManyNames("groups", "groups"),
    ),
    Answered(ApiKey.LIST_GROUPS, list_groups.handle, (After(only_visible_groups),)),
    Answered(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.handle, consumer_group_guard.guard_heartbeat),
    Answered(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        consumer_group_describe.handle,
        (Each("group_ids", "groups", on_each_group(DESCRIBE)), After(consumer_group_guard.without_hidden_topics)),
        names=ManyNames("group_ids", "groups"),
    ),
    Answered(ApiKey.STREAMS_GROUP_HEARTBEAT, streams_group_heartbeat.handle, streams_group_guard.guard_heartbeat),
    Answered(
        ApiKey.STREAMS_GROUP_DESCRIBE,
        streams_group_describe.handle,
        (Each("group_ids", "groups", on_each_group(DESCRIBE)), After(streams_group_guard.without_hidden_topics)),
        names=ManyNames("group_ids", "groups"),
    ),
    Forwarded(ApiKey.CREATE_TOPICS),
    Forwarded(ApiKey.DELETE_TOPICS),
    Answered(
        ApiKey.DELETE_RECORDS, delete_records.handle, (Each("topics", "topics", on_topic(DELETE)),), names=topics()
    ),
    Answered(ApiKey.INIT_PRODUCER_ID, init_producer_id.handle, init_producer_id_guard.guard),
    Answered(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        offset_for_leader_epoch.handle,
        (Each("topics", "topics", on_topic(DESCRIBE, "topic"), unless=on_cluster(CLUSTER_ACTION)),),
        names=topics(),
    ),
    Answered(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        add_partitions_to_txn.handle,
        add_partitions_to_txn_guard.guard,
        names=ManyNames("transactions", "results_by_transaction", key=None),
    ),
    Answered(
        ApiKey.ADD_OFFSETS_TO_TXN,
        add_offsets_to_txn.handle,
        (Whole((on_transactional_id(WRITE),)), Whole((on_group(READ),))),
    ),
    Answered(ApiKey.END_TXN, end_txn.handle, (Whole((on_transactional_id(WRITE),)),)),
    Answered(
        ApiKey.WRITE_TXN_MARKERS, write_txn_markers.handle, (Whole((on_cluster(ALTER), on_cluster(CLUSTER_ACTION))),)
    ),
    Answered(
        ApiKey.TXN_OFFSET_COMMIT,
        txn_offset_commit.handle,
        (
            Whole((on_transactional_id(WRITE),)),
            Whole((on_group(READ),)),
            Each("topics", "topics", on_topic_or_id(READ)),
        ),
    ),
    Answered(ApiKey.DESCRIBE_ACLS, describe_acls.handle, (Whole((on_cluster(DESCRIBE),)),)),
    Forwarded(ApiKey.CREATE_ACLS),
    Forwarded(ApiKey.DELETE_ACLS),
    Answered(
        ApiKey.DESCRIBE_CONFIGS,
        describe_configs.handle,
        (Each("resources", "results", describe_config_resource, has_message=True),),
        names=ManyNames("resources", "results", RESOURCES_AT_ONCE, config_resource),
    ),
    Forwarded(ApiKey.ALTER_CONFIGS, forward_checked),
    Answered(ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.handle, (Whole((on_cluster(ALTER),)),)),
    Answered(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.handle, (Whole((on_cluster(DESCRIBE),)),)),
    Forwarded(ApiKey.CREATE_PARTITIONS),
    Answered(
        ApiKey.DELETE_GROUPS,
        delete_groups.handle,
        (Each("groups_names", "results", on_each_group(DELETE)),),
        names=ManyNames("groups_names", "results"),
    ),
    Forwarded(ApiKey.CREATE_DELEGATION_TOKEN),
    Forwarded(ApiKey.RENEW_DELEGATION_TOKEN),
    Forwarded(ApiKey.EXPIRE_DELEGATION_TOKEN),
    Answered(ApiKey.DESCRIBE_DELEGATION_TOKEN, describe_delegation_token.handle, (After(only_visible_tokens),)),
    Forwarded(ApiKey.ELECT_LEADERS),
    Forwarded(ApiKey.INCREMENTAL_ALTER_CONFIGS, forward_checked),
    Forwarded(ApiKey.ALTER_PARTITION_REASSIGNMENTS),
    Forwarded(ApiKey.LIST_PARTITION_REASSIGNMENTS),
    Answered(ApiKey.OFFSET_DELETE, offset_delete.handle, offset_delete_guard.guard),
    Forwarded(ApiKey.DESCRIBE_QUORUM),
    Answered(ApiKey.DESCRIBE_CLIENT_QUOTAS, describe_client_quotas.handle, (Whole((on_cluster(DESCRIBE_CONFIGS),)),)),
    Forwarded(ApiKey.ALTER_CLIENT_QUOTAS),
    Answered(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        describe_user_scram_credentials.handle,
        (Whole((on_cluster(DESCRIBE),)),),
    ),
    Forwarded(ApiKey.ALTER_USER_SCRAM_CREDENTIALS),
    Forwarded(ApiKey.UPDATE_FEATURES),
    Answered(ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle, (After(cluster_operations),)),
    Answered(
        ApiKey.DESCRIBE_PRODUCERS,
        describe_producers.handle,
        (Each("topics", "topics", read_valid_topic),),
        names=topics(partitions="partition_indexes"),
    ),
    Forwarded(ApiKey.UNREGISTER_BROKER),
    Answered(
        ApiKey.DESCRIBE_TRANSACTIONS,
        describe_transactions.handle,
        (
            After(only_visible_topics),
            Each("transactional_ids", "transaction_states", on_each_transactional_id(DESCRIBE)),
        ),
        names=ManyNames("transactional_ids", "transaction_states"),
    ),
    Answered(ApiKey.LIST_TRANSACTIONS, list_transactions.handle, (After(only_visible_transactions),)),
    Answered(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, get_telemetry_subscriptions.handle, OPEN),
    Answered(ApiKey.PUSH_TELEMETRY, push_telemetry.handle, OPEN),
    Answered(ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.handle, (Whole((on_cluster(DESCRIBE_CONFIGS),)),)),
    Answered(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle, describe_topic_partitions_guard.guard),
    Answered(ApiKey.SHARE_FETCH, share_fetch.handle, share_guard.guard_fetch),
    Answered(ApiKey.SHARE_ACKNOWLEDGE, share_acknowledge.handle, share_guard.guard_acknowledge),
    Forwarded(ApiKey.ADD_RAFT_VOTER),
    Forwarded(ApiKey.REMOVE_RAFT_VOTER),
    Forwarded(ApiKey.UNREGISTER_CONTROLLER),
    Answered(ApiKey.SHARE_GROUP_HEARTBEAT, share_group_heartbeat.handle, share_group_guard.guard_heartbeat),
    Answered(
        ApiKey.SHARE_GROUP_DESCRIBE,
        share_group_describe.handle,
        (Each("group_ids", "groups", on_each_group(DESCRIBE)), After(share_group_guard.without_hidden_topics)),
        names=ManyNames("group_ids", "groups"),
    ),
    Answered(
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS,
        describe_share_group_offsets.handle,
        share_group_guard.guard_describe_offsets,
        names=ManyNames("groups", "groups", key=None, inside=("topics", "topics")),
    ),
    Answered(ApiKey.ALTER_SHARE_GROUP_OFFSETS, alter_share_group_offsets.handle, share_group_guard.guard_alter_offsets),
    Answered(
        ApiKey.DELETE_SHARE_GROUP_OFFSETS, delete_share_group_offsets.handle, share_group_guard.guard_delete_offsets
    ),
    Answered(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        streams_group_topology_description_update.handle,
        _GROUP_MEMBER,
    ),
    Answered(
        ApiKey.INITIALIZE_SHARE_GROUP_STATE, initialize_share_group_state.handle, _BROKER, names=topics("results")
    ),
    Answered(ApiKey.READ_SHARE_GROUP_STATE, read_share_group_state.handle, _BROKER, names=topics("results")),
    Answered(ApiKey.WRITE_SHARE_GROUP_STATE, write_share_group_state.handle, _BROKER, names=topics("results")),
    Answered(ApiKey.DELETE_SHARE_GROUP_STATE, delete_share_group_state.handle, _BROKER, names=topics("results")),
    Answered(
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, read_share_group_state_summary.handle, _BROKER, names=topics("results")
    ),
)


def _handler(broker: BrokerComponents, row: Answered) -> Handler:
    handler = guarded(broker, row.api_key, row.authorization, partial(row.handler, broker))
    return handler if row.names is None else in_parts(broker.long_work, row.names, handler)


def broker_routes(broker: BrokerComponents) -> list[Route]:
    """Returns the rows, bound to the components of one broker, behind their guards."""
    return [
        Route(
            row.api_key,
            partial(row.checked, broker) if row.checked else partial(forward, broker.controller),
            takes_frame=True,
        )
        if isinstance(row, Forwarded)
        else Route(
            row.api_key,
            _handler(broker, row),
            encoder=row.encoder,
            fast_path=row.fast_path and row.fast_path(broker),
        )
        for row in ROUTES
    ]
