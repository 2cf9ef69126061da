"""Who may use which API: one row per API that a broker answers itself, as Kafka's KafkaApis asks its authorizer.

The controller authorizes forwarded requests, for the client that sent them (controller/handlers/authorization.py). ApiVersions
needs no permission. A broker whose routes.py has a handler without a row here does not start; tests/rules/test_tables.py names
the missing row.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    only_visible_topics,
    only_visible_transactions,
    without_messages,
)
from ottla.broker.authorization.guard import After, Each, Rules, Whole
from ottla.protocol.api import ApiKey
from ottla.protocol.ranges import parse
from ottla.server.security.operations import ALTER, CLUSTER_ACTION, DELETE, DESCRIBE, DESCRIBE_CONFIGS, READ, WRITE

#: Anybody may ask.
OPEN: tuple[Whole, ...] = ()

_MEMBER = (Whole((on_group(READ),)),)

RULES: Mapping[ApiKey, Rules] = {
    ApiKey.PRODUCE: produce_guard.guard,
    ApiKey.FETCH: fetch_guard.guard,
    ApiKey.LIST_OFFSETS: (Each("topics", "topics", on_topic(DESCRIBE)),),
    ApiKey.METADATA: metadata_guard.guard,
    ApiKey.OFFSET_COMMIT: (Whole((on_group(READ),)), Each("topics", "topics", on_topic_or_id(READ))),
    ApiKey.OFFSET_FETCH: offset_fetch_guard.guard,
    ApiKey.FIND_COORDINATOR: (
        After(without_messages),
        Whole((find_share_coordinator,), versions=parse("6+")),
        Whole((describe_coordinator_key,), versions=parse("0-3")),
        Each("coordinator_keys", "coordinators", describe_coordinator_key, versions=parse("4+")),
    ),
    ApiKey.JOIN_GROUP: _MEMBER,
    ApiKey.HEARTBEAT: _MEMBER,
    ApiKey.LEAVE_GROUP: _MEMBER,
    ApiKey.SYNC_GROUP: (
        Whole((on_group(READ),), versions=parse("0-4")),
        Whole((sync_with_protocol,), versions=parse("5+")),
    ),
    ApiKey.DESCRIBE_GROUPS: (After(group_operations), Each("groups", "groups", on_each_group(DESCRIBE))),
    ApiKey.LIST_GROUPS: (After(only_visible_groups),),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_guard.guard_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        Each("group_ids", "groups", on_each_group(DESCRIBE)),
        After(consumer_group_guard.without_hidden_topics),
    ),
    ApiKey.DELETE_RECORDS: (Each("topics", "topics", on_topic(DELETE)),),
    ApiKey.INIT_PRODUCER_ID: init_producer_id_guard.guard,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn_guard.guard,
    ApiKey.ADD_OFFSETS_TO_TXN: (Whole((on_transactional_id(WRITE),)), Whole((on_group(READ),))),
    ApiKey.END_TXN: (Whole((on_transactional_id(WRITE),)),),
    ApiKey.WRITE_TXN_MARKERS: (Whole((on_cluster(ALTER), on_cluster(CLUSTER_ACTION))),),
    ApiKey.TXN_OFFSET_COMMIT: (
        Whole((on_transactional_id(WRITE),)),
        Whole((on_group(READ),)),
        Each("topics", "topics", on_topic_or_id(READ)),
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        After(only_visible_topics),
        Each("transactional_ids", "transaction_states", on_each_transactional_id(DESCRIBE)),
    ),
    ApiKey.LIST_TRANSACTIONS: (After(only_visible_transactions),),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Each("topics", "topics", on_topic(DESCRIBE, "topic"), unless=on_cluster(CLUSTER_ACTION)),
    ),
    ApiKey.DESCRIBE_ACLS: (Whole((on_cluster(DESCRIBE),)),),
    ApiKey.DESCRIBE_CONFIGS: (Each("resources", "results", describe_config_resource, has_message=True),),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Whole((on_cluster(ALTER),)),),
    ApiKey.DESCRIBE_LOG_DIRS: (Whole((on_cluster(DESCRIBE),)),),
    ApiKey.DELETE_GROUPS: (Each("groups_names", "results", on_each_group(DELETE)),),
    ApiKey.OFFSET_DELETE: offset_delete_guard.guard,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Whole((on_cluster(DESCRIBE),)),),
    ApiKey.DESCRIBE_CLUSTER: (After(cluster_operations),),
    ApiKey.DESCRIBE_PRODUCERS: (Each("topics", "topics", read_valid_topic),),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: OPEN,
    ApiKey.PUSH_TELEMETRY: OPEN,
    ApiKey.LIST_CONFIG_RESOURCES: (Whole((on_cluster(DESCRIBE_CONFIGS),)),),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions_guard.guard,
}
