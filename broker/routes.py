"""What a broker's listeners answer, one row per API: a handler of handlers/, or FORWARD to the active controller.

ApiVersions is answered by the server from exactly these rows. An API of Kafka is declared in protocol/api.py already; to serve it
takes one row here, one file in handlers/, one row in broker/authorization/rules.py, and tests. tests/rules name what is missing.
CONTRIBUTING.md has the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from ottla.broker.authorization.guard import guarded
from ottla.broker.authorization.rules import RULES
from ottla.broker.cluster.forwarding import forward
from ottla.broker.encoded_metadata import metadata_encoder
from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_replica_log_dirs,
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    delete_records,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    fetch,
    find_coordinator,
    get_telemetry_subscriptions,
    heartbeat,
    init_producer_id,
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
    produce,
    push_telemetry,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.parts import BrokerParts
from ottla.protocol.api import ApiKey
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Route

FORWARD: Final = "forward"

LocalHandler = Callable[[BrokerParts, Any, RequestContext], Any]

ROUTES: tuple[tuple[ApiKey, LocalHandler | str], ...] = (
    (ApiKey.PRODUCE, produce.handle),
    (ApiKey.FETCH, fetch.handle),
    (ApiKey.LIST_OFFSETS, list_offsets.handle),
    (ApiKey.METADATA, metadata.handle),
    (ApiKey.OFFSET_COMMIT, offset_commit.handle),
    (ApiKey.OFFSET_FETCH, offset_fetch.handle),
    (ApiKey.FIND_COORDINATOR, find_coordinator.handle),
    (ApiKey.JOIN_GROUP, join_group.handle),
    (ApiKey.HEARTBEAT, heartbeat.handle),
    (ApiKey.LEAVE_GROUP, leave_group.handle),
    (ApiKey.SYNC_GROUP, sync_group.handle),
    (ApiKey.DESCRIBE_GROUPS, describe_groups.handle),
    (ApiKey.LIST_GROUPS, list_groups.handle),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat.handle),
    (ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe.handle),
    (ApiKey.CREATE_TOPICS, FORWARD),
    (ApiKey.DELETE_TOPICS, FORWARD),
    (ApiKey.DELETE_RECORDS, delete_records.handle),
    (ApiKey.INIT_PRODUCER_ID, init_producer_id.handle),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch.handle),
    (ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn.handle),
    (ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn.handle),
    (ApiKey.END_TXN, end_txn.handle),
    (ApiKey.WRITE_TXN_MARKERS, write_txn_markers.handle),
    (ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit.handle),
    (ApiKey.DESCRIBE_ACLS, describe_acls.handle),
    (ApiKey.CREATE_ACLS, FORWARD),
    (ApiKey.DELETE_ACLS, FORWARD),
    (ApiKey.DESCRIBE_CONFIGS, describe_configs.handle),
    (ApiKey.ALTER_CONFIGS, FORWARD),
    (ApiKey.ALTER_REPLICA_LOG_DIRS, alter_replica_log_dirs.handle),
    (ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs.handle),
    (ApiKey.CREATE_PARTITIONS, FORWARD),
    (ApiKey.DELETE_GROUPS, delete_groups.handle),
    (ApiKey.ELECT_LEADERS, FORWARD),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, FORWARD),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, FORWARD),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, FORWARD),
    (ApiKey.OFFSET_DELETE, offset_delete.handle),
    (ApiKey.DESCRIBE_QUORUM, FORWARD),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials.handle),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, FORWARD),
    (ApiKey.UPDATE_FEATURES, FORWARD),
    (ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle),
    (ApiKey.DESCRIBE_PRODUCERS, describe_producers.handle),
    (ApiKey.UNREGISTER_BROKER, FORWARD),
    (ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions.handle),
    (ApiKey.LIST_TRANSACTIONS, list_transactions.handle),
    (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, get_telemetry_subscriptions.handle),
    (ApiKey.PUSH_TELEMETRY, push_telemetry.handle),
    (ApiKey.LIST_CONFIG_RESOURCES, list_config_resources.handle),
    (ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions.handle),
    (ApiKey.ADD_RAFT_VOTER, FORWARD),
    (ApiKey.REMOVE_RAFT_VOTER, FORWARD),
)


#: APIs with an answer that is encoded already.
ENCODERS = {ApiKey.METADATA: metadata_encoder}


def broker_routes(broker: BrokerParts) -> list[Route]:
    """The rows bound to the parts of one broker, behind their guards."""
    return [
        Route(api_key, partial(forward, broker.controller), takes_frame=True)
        if isinstance(handler, str)
        else Route(
            api_key,
            guarded(broker, api_key, RULES[api_key], partial(handler, broker)),
            encoder=ENCODERS.get(api_key),
        )
        for api_key, handler in ROUTES
    ]
