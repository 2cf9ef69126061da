"""A request for each API that names resources picked at random, as names and values of its fields.

What a principal might be allowed to do must leave both servers alike: changes are validated only, or are of members, epochs,
brokers and clusters that do not exist. A topic id is given by the topic's name, an hmac by its token's owner.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from ottla.protocol.api import ApiKey
from ottla.protocol.schema import fields
from ottla.server.authorization.operations import ALLOW, LITERAL, READ, TOPIC
from tests.broker.records import batch

TOPICS = ("apple", "apple-2", "bun", "bun-2", "ghost")
GROUPS = ("fresh", "goats", "goats-2", "hens", "ibex")
CLASSIC, CONSUMER, SHARE, STREAMS = "goats", "goats-2", "hens", "ibex"
TRANSACTIONS = ("pay", "pay-2", "quote")
OWNERS = ("alice", "bob")
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
NODE = "1"
ELSEWHERE = "another-cluster-than-this"
METADATA_TOPIC = "__cluster_metadata"
Spec = dict[str, Any]


class Pick:
    """Chooses resources."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def one_in(self, chances: int) -> bool:
        return self.rng.randrange(chances) == 0

    def flag(self) -> bool:
        return self.one_in(2)

    def topics(self) -> list[str]:
        return self.rng.sample(TOPICS, self.rng.randint(1, 3))

    def groups(self) -> list[str]:
        return self.rng.sample(GROUPS, self.rng.randint(1, 3))

    def group(self) -> str:
        return self.rng.choice(GROUPS)

    def transactions(self) -> list[str]:
        return self.rng.sample(TRANSACTIONS, self.rng.randint(1, 2))

    def transaction(self) -> str:
        return self.rng.choice(TRANSACTIONS)


def _topics(pick: Pick, *names: str, partitions: str = "partitions", **row: Any) -> list[Spec]:
    """Elements for topics: `names` are the fields that name one; with a `row` its partitions are structures, else numbers."""
    named = names or ("name",)
    rows = [row] if row else [0]
    return [{**dict.fromkeys(named, topic), partitions: rows} for topic in pick.topics()]


def _config(kind: int) -> Spec:
    of_kind = {
        2: ("retention.ms", "60000"),
        4: ("log.retention.ms", "60000"),
        32: ("consumer.session.timeout.ms", "45000"),
    }
    name, value = of_kind.get(kind, ("interval.ms", "5000"))
    return {"name": name, "config_operation": 0, "value": value}


def _resources(pick: Pick, *, configs: bool) -> list[Spec]:
    candidates = [
        (2, pick.rng.choice(TOPICS)), (2, pick.rng.choice(TOPICS[:-1])), (4, NODE), (32, pick.group()), (16, "subscription"),
    ]  # fmt: skip
    chosen = dict.fromkeys(pick.rng.sample(candidates, 2))
    return [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        | ({"configs": [_config(kind)]} if configs else {})
        for kind, name in chosen
    ]


def _metadata(pick: Pick, version: int) -> Spec:
    topics: list[Spec] | None = [{"name": topic, "topic_id": "none"} for topic in pick.topics()]
    if pick.one_in(3):
        topics = None if version else []
    elif version >= 12 and pick.flag():
        topics = [{"name": None, "topic_id": topic} for topic in pick.topics()]
    shown = dict.fromkeys(("include_cluster_authorized_operations", "include_topic_authorized_operations"), pick.flag())
    return {"topics": topics, "allow_auto_topic_creation": False} | shown


def _offset_fetch(pick: Pick, version: int) -> Spec:
    def topics() -> list[Spec] | None:
        if version >= 2 and pick.one_in(3):
            return None
        return _topics(pick, "name", "topic_id", partitions="partition_indexes")

    groups = [{"group_id": group, "member_id": None, "member_epoch": -1, "topics": topics()} for group in pick.groups()]
    return {"group_id": pick.group(), "topics": topics(), "groups": groups}


def _fetch(pick: Pick, version: int) -> Spec:
    replica = 99 if pick.one_in(4) else -1
    rows = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }  # fmt: skip
    return {
        "replica_id": replica, "replica_state": {"replica_id": replica, "replica_epoch": -1}, "max_bytes": 1000,
        "session_epoch": -1, "topics": _topics(pick, "topic", "topic_id", **rows),
    }  # fmt: skip


def _produce(pick: Pick, version: int) -> Spec:
    transaction = pick.transaction() if pick.one_in(4) else None
    records = batch([b"x"])
    if transaction is not None:
        records = batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    elif pick.one_in(3):
        records = batch([b"x"], producer_id=700_000 + pick.rng.randrange(100_000), producer_epoch=0, base_sequence=0)
    return {
        "transactional_id": transaction, "acks": pick.rng.choice([1, -1]), "timeout_ms": 5_000,
        "topic_data": _topics(pick, "name", "topic_id", partitions="partition_data", index=0, records=records),
    }  # fmt: skip


def _find_coordinator(pick: Pick, version: int) -> Spec:
    kind = pick.rng.randrange(3 if version >= 6 else 2)
    keys = pick.transactions() if kind == 1 else pick.groups()
    if kind == 2:
        keys = [f"{group}:AAAAAAAAAAAAAAAAAAAAAQ:0" for group in keys]
    return {"key": keys[0], "key_type": kind, "coordinator_keys": keys}


def _streams_heartbeat(pick: Pick, version: int) -> Spec:
    topology = None
    if pick.flag():
        topology = {
            "epoch": 0,
            "subtopologies": [
                {
                    "subtopology_id": "0",
                    "source_topics": pick.topics(),
                    "state_changelog_topics": [{"name": pick.rng.choice(TOPICS[:-1]), "replication_factor": 1}],
                }
            ],
        }
    return {
        "group_id": pick.group(), "member_id": MEMBER, "member_epoch": 5, "rebalance_timeout_ms": 1000 if topology else -1,
        "topology": topology,
    }  # fmt: skip


def _share_state(pick: Pick, *more: str) -> Spec:
    row = {"partition": 0, "leader_epoch": 0, **dict.fromkeys(more, 0)}
    return {"group_id": pick.group(), "topics": _topics(pick, "topic_id", **row)}


def _share_topics(pick: Pick) -> list[Spec]:
    """Return topics without an unknown id in a session's first request, which Kafka answers with UNKNOWN_SERVER_ERROR
    (docs/DIFFERENCES.md).
    """
    row = {"partition_index": 0, "acknowledgement_batches": []}
    return [{"topic_id": topic, "partitions": [row]} for topic in pick.topics() if topic != TOPICS[-1]]


def _acknowledged(pick: Pick) -> list[Spec]:
    batches = [{"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}]
    return _topics(pick, "topic_id", partition_index=0, acknowledgement_batches=batches)


def _in_transaction(pick: Pick, version: int) -> Spec:
    topics = _topics(pick)
    rows = [
        {"transactional_id": name, "producer_id": 7, "producer_epoch": 0, "verify_only": pick.flag(), "topics": topics}
        for name in pick.transactions()
    ]
    return {
        "transactions": rows,
        "v3_and_below_transactional_id": pick.transaction(),
        "v3_and_below_producer_id": 7,
        "v3_and_below_topics": topics,
    }


def _create_topics(pick: Pick, version: int) -> Spec:
    names = [*pick.topics(), f"new-{pick.rng.randrange(3)}"]
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return {"topics": rows, "timeout_ms": 5_000, "validate_only": True}


def _delete_topics(pick: Pick, version: int) -> Spec:
    names = ["ghost", *(["doomed"] if pick.flag() else [])]
    by_id = pick.flag()
    rows = [{"name": None if by_id else name, "topic_id": name if by_id else "none"} for name in names]
    return {"topics": rows, "topic_names": names, "timeout_ms": 5_000}


def _token(pick: Pick, version: int) -> Spec:
    owner = pick.rng.choice([None, *OWNERS, "carol"]) if version >= 3 else None
    return {
        "owner_principal_type": None if owner is None else "User",
        "owner_principal_name": owner,
        "renewers": [{"principal_type": "User", "principal_name": pick.rng.choice(OWNERS)}] if pick.flag() else [],
        "max_lifetime_ms": -1,
    }


def _tokens(pick: Pick, version: int) -> Spec:
    owners = [
        {"principal_type": "User", "principal_name": name} for name in pick.rng.sample(OWNERS, pick.rng.randint(1, 2))
    ]
    return {"owners": None if pick.flag() else owners}


#: A resource of DescribeAcls and DeleteAcls that does not exist in any world.
_NO_ACL = {
    "resource_type_filter": TOPIC, "resource_name_filter": "nothing", "pattern_type_filter": LITERAL,
    "principal_filter": "User:mallory", "host_filter": None, "operation": READ, "permission_type": ALLOW,
}  # fmt: skip
_ANY_ACL = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_NEW_ACL = {
    "resource_type": TOPIC, "resource_name": "nothing", "resource_pattern_type": LITERAL, "principal": "User:mallory",
    "host": "*", "operation": READ, "permission_type": ALLOW,
}  # fmt: skip

REQUESTS: Mapping[ApiKey, Callable[[Pick, int], Spec]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: lambda p, v: {
        "replica_id": -1, "topics": _topics(p, partition_index=0, current_leader_epoch=-1, timestamp=-1),
    },
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: lambda p, v: {
        "group_id": p.group(), "generation_id_or_member_epoch": -1,
        "topics": _topics(p, "name", "topic_id", partition_index=0, committed_offset=1, committed_metadata=""),
    },
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: lambda p, v: {
        "group_id": p.group(), "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": MEMBER,
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"\0\1"}],
    },
    ApiKey.HEARTBEAT: lambda p, v: {"group_id": p.group(), "generation_id": 5, "member_id": MEMBER},
    ApiKey.LEAVE_GROUP: lambda p, v: {"group_id": p.group(), "member_id": MEMBER, "members": [{"member_id": MEMBER}]},
    ApiKey.SYNC_GROUP: lambda p, v: {
        "group_id": p.group(), "generation_id": 5, "member_id": MEMBER, "protocol_type": "consumer", "protocol_name": "range",
    },
    ApiKey.DESCRIBE_GROUPS: lambda p, v: {"groups": p.groups(), "include_authorized_operations": p.flag()},
    ApiKey.LIST_GROUPS: lambda p, v: {},
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: lambda p, v: {"topics": _topics(p, partition_index=0, offset=0), "timeout_ms": 5_000},
    ApiKey.INIT_PRODUCER_ID: lambda p, v: {
        "transactional_id": p.transaction() if p.flag() else None, "transaction_timeout_ms": 60_000,
        "producer_id": -1, "producer_epoch": -1,
    },
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda p, v: {
        "replica_id": 99 if p.flag() else -1,
        "topics": _topics(p, "topic", partition=0, current_leader_epoch=-1, leader_epoch=0),
    },
    ApiKey.ADD_PARTITIONS_TO_TXN: _in_transaction,
    ApiKey.ADD_OFFSETS_TO_TXN: lambda p, v: {"transactional_id": p.transaction(), "producer_id": 7, "group_id": p.group()},
    ApiKey.END_TXN: lambda p, v: {"transactional_id": p.transaction(), "producer_id": 7},
    ApiKey.WRITE_TXN_MARKERS: lambda p, v: {
        "markers": [{"producer_id": 7, "topics": [{"name": "ghost", "partition_indexes": [0]}]}],
    },
    ApiKey.TXN_OFFSET_COMMIT: lambda p, v: {
        "transactional_id": p.transaction(), "group_id": p.group(), "producer_id": 7, "generation_id_or_member_epoch": -1,
        "topics": _topics(p, "name", "topic_id", partition_index=0, committed_offset=1, committed_metadata=""),
    },
    ApiKey.DESCRIBE_ACLS: lambda p, v: _ANY_ACL if p.flag() else _NO_ACL,
    ApiKey.CREATE_ACLS: lambda p, v: {"creations": [_NEW_ACL]},
    ApiKey.DELETE_ACLS: lambda p, v: {"filters": [_NO_ACL]},
    ApiKey.DESCRIBE_CONFIGS: lambda p, v: {"resources": _resources(p, configs=False)},
    ApiKey.ALTER_CONFIGS: lambda p, v: {"resources": _resources(p, configs=True), "validate_only": True},
    ApiKey.ALTER_REPLICA_LOG_DIRS: lambda p, v: {"dirs": [{"path": "/nowhere", "topics": _topics(p)}]},
    ApiKey.DESCRIBE_LOG_DIRS: lambda p, v: {"topics": _topics(p, "topic")},
    ApiKey.CREATE_PARTITIONS: lambda p, v: {
        "topics": [{"name": name, "count": 3, "assignments": None} for name in p.topics()], "timeout_ms": 5_000,
        "validate_only": True,
    },
    ApiKey.CREATE_DELEGATION_TOKEN: _token,
    ApiKey.RENEW_DELEGATION_TOKEN: lambda p, v: {"hmac": p.rng.choice([*OWNERS, "none"]), "renew_period_ms": -1},
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda p, v: {"hmac": p.rng.choice([*OWNERS, "none"]), "expiry_time_period_ms": 9_000_000},
    ApiKey.DESCRIBE_DELEGATION_TOKEN: _tokens,
    ApiKey.DELETE_GROUPS: lambda p, v: {"groups_names": ["fresh", "fresh-2"]},
    ApiKey.ELECT_LEADERS: lambda p, v: {"topic_partitions": _topics(p, "topic"), "timeout_ms": 5_000},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda p, v: {"resources": _resources(p, configs=True), "validate_only": True},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda p, v: {
        "timeout_ms": 5_000, "topics": _topics(p, partition_index=0, replicas=None),
    },
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda p, v: {
        "timeout_ms": 5_000, "topics": None if p.flag() else _topics(p, partitions="partition_indexes"),
    },
    ApiKey.OFFSET_DELETE: lambda p, v: {"group_id": p.group(), "topics": _topics(p, partition_index=0)},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: lambda p, v: {"components": [{"entity_type": "user", "match_type": 2, "match": None}]},
    ApiKey.ALTER_CLIENT_QUOTAS: lambda p, v: {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "alice"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e6, "remove": False}],
            }
        ],
        "validate_only": True,
    },
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: lambda p, v: {"users": [{"name": "mallory"}]},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: lambda p, v: {"deletions": [{"name": "mallory", "mechanism": 1}], "upsertions": []},
    ApiKey.VOTE: lambda p, v: {"cluster_id": ELSEWHERE, "voter_id": 1, "topics": _quorum("topic_name")},
    ApiKey.BEGIN_QUORUM_EPOCH: lambda p, v: {"cluster_id": ELSEWHERE, "voter_id": 1, "topics": _quorum("topic_name")},
    ApiKey.END_QUORUM_EPOCH: lambda p, v: {"cluster_id": ELSEWHERE, "topics": _quorum("topic_name")},
    ApiKey.DESCRIBE_QUORUM: lambda p, v: {"topics": _quorum("topic_name")},
    ApiKey.ALTER_PARTITION: lambda p, v: {
        "broker_id": 99, "broker_epoch": 0, "topics": _topics(p, "topic_id", partition_index=0),
    },
    ApiKey.UPDATE_FEATURES: lambda p, v: {
        "timeout_ms": 5_000, "feature_updates": [{"feature": "nothing", "max_version_level": 1, "upgrade_type": 1}],
        "validate_only": True,
    },
    ApiKey.FETCH_SNAPSHOT: lambda p, v: {"cluster_id": ELSEWHERE, "replica_id": 99, "max_bytes": 1, "topics": _quorum("name")},
    ApiKey.DESCRIBE_CLUSTER: lambda p, v: {"include_cluster_authorized_operations": p.flag(), "endpoint_type": 1},
    ApiKey.DESCRIBE_PRODUCERS: lambda p, v: {"topics": _topics(p, partitions="partition_indexes")},
    ApiKey.BROKER_REGISTRATION: lambda p, v: {
        "broker_id": 99, "cluster_id": ELSEWHERE, "incarnation_id": "apple", "previous_broker_epoch": -1,
    },
    ApiKey.BROKER_HEARTBEAT: lambda p, v: {"broker_id": 99, "broker_epoch": 0},
    ApiKey.UNREGISTER_BROKER: lambda p, v: {"broker_id": 99},
    ApiKey.DESCRIBE_TRANSACTIONS: lambda p, v: {"transactional_ids": p.transactions()},
    ApiKey.LIST_TRANSACTIONS: lambda p, v: {"duration_filter": -1},
    ApiKey.ALLOCATE_PRODUCER_IDS: lambda p, v: {"broker_id": 99, "broker_epoch": 0},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda p, v: {
        "group_id": p.group(), "member_id": MEMBER, "member_epoch": 5, "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None if p.one_in(4) else p.topics(), "topic_partitions": None,
        "subscribed_topic_regex": "b.*" if p.one_in(4) else None,
    },
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda p, v: {"group_ids": p.groups(), "include_authorized_operations": p.flag()},
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: lambda p, v: {"client_instance_id": "none"},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: lambda p, v: {"broker_id": 99, "broker_epoch": 0, "directories": []},
    ApiKey.LIST_CONFIG_RESOURCES: lambda p, v: {"resource_types": [2, 16] if v else []},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda p, v: {
        "topics": [] if p.one_in(3) else [{"name": name} for name in sorted(p.topics())],
        "response_partition_limit": 2000, "cursor": None,
    },
    ApiKey.SHARE_GROUP_HEARTBEAT: lambda p, v: {
        "group_id": p.group(), "member_id": MEMBER, "member_epoch": 5,
        "subscribed_topic_names": None if p.one_in(4) else p.topics(),
    },
    ApiKey.SHARE_GROUP_DESCRIBE: lambda p, v: {"group_ids": p.groups(), "include_authorized_operations": p.flag()},
    ApiKey.SHARE_FETCH: lambda p, v: {
        "group_id": p.group(), "member_id": MEMBER, "share_session_epoch": 5 if p.one_in(4) else 0, "max_bytes": 1000,
        "max_records": 1, "batch_size": 1, "topics": _share_topics(p),
    },
    ApiKey.SHARE_ACKNOWLEDGE: lambda p, v: {
        "group_id": p.group(), "member_id": MEMBER, "share_session_epoch": 5, "topics": _acknowledged(p),
    },
    ApiKey.ADD_RAFT_VOTER: lambda p, v: {
        "cluster_id": ELSEWHERE, "timeout_ms": 1000, "voter_id": 99, "voter_directory_id": "apple",
        "listeners": [{"name": "CONTROLLER", "host": "localhost", "port": 1}],
    },
    ApiKey.REMOVE_RAFT_VOTER: lambda p, v: {"cluster_id": ELSEWHERE, "voter_id": 99, "voter_directory_id": "apple"},
    ApiKey.UPDATE_RAFT_VOTER: lambda p, v: {"cluster_id": ELSEWHERE, "voter_id": 99, "voter_directory_id": "apple"},
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: lambda p, v: _share_state(p, "state_epoch", "start_offset"),
    ApiKey.READ_SHARE_GROUP_STATE: lambda p, v: _share_state(p),
    ApiKey.WRITE_SHARE_GROUP_STATE: lambda p, v: _share_state(p, "state_epoch", "start_offset"),
    ApiKey.DELETE_SHARE_GROUP_STATE: lambda p, v: _share_state(p),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: lambda p, v: _share_state(p),
    ApiKey.STREAMS_GROUP_HEARTBEAT: _streams_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: lambda p, v: {"group_ids": p.groups(), "include_authorized_operations": p.flag()},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: lambda p, v: {
        "groups": [{"group_id": group, "topics": None if p.one_in(3) else _topics(p, "topic_name")} for group in p.groups()],
    },
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: lambda p, v: {
        "group_id": p.group(), "topics": _topics(p, "topic_name", partition_index=0, start_offset=0),
    },
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: lambda p, v: {
        "group_id": p.group(), "topics": [{"topic_name": name} for name in p.topics()],
    },
}  # fmt: skip


def _quorum(name: str) -> list[Spec]:
    return [{name: METADATA_TOPIC, "partitions": [{"partition_index": 0, "partition": 0, "replica_id": 99}]}]


def build(cls: Any, spec: Spec, version: int, secrets: Mapping[str, bytes]) -> Any:
    """Make the request in a version. `secrets` are the server's own topic ids by name, and the hmacs by their owners."""
    given = {}
    for field in fields(cls.__plain__):
        if field.name in spec and version in field.versions:
            item, value = field.type.item, spec[field.name]
            if field.type.name in ("uuid", "bytes") and isinstance(value, str):
                value = secrets[f"{field.type.name}:{value}"]
            elif item is not None and item.struct is not None and value is not None:
                value = [build(item.struct, each, version, secrets) for each in value]
            elif field.type.struct is not None and value is not None:
                value = build(field.type.struct, value, version, secrets)
            given[field.name] = value
    return cls(**given)
