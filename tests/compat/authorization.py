"""The same requests of the same principals to Apache Kafka and to a node, under the same random ACLs; the answers are compared.

Each API that a listener of both advertises is requested in each world, in a random version, on resources picked at random: on two of
the broker's listeners (SASL, and PLAINTEXT as User:ANONYMOUS), and on the controller's (KIP-919). What is compared of an answer are
its error codes, the names of the resources that it shows, and the authorized operations.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import read_share_group_state_summary as share_state
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from ottla.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import ReadStatePartition, ReadStateTopic, Subtopology
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology
from ottla.protocol.schema import ZERO_UUID, Struct
from ottla.server.authorization.operations import (
    ALL,
    ALLOW,
    CLUSTER,
    CLUSTER_NAME,
    DELEGATION_TOKEN,
    DENY,
    GROUP,
    LITERAL,
    PREFIXED,
    SUPPORTED_OPERATIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    USER,
    WILDCARD,
)
from tests.broker.authorization.requests import commit
from tests.broker.wire import Wire
from tests.compat.authorization_requests import (
    CLASSIC,
    CONSUMER,
    GROUPS,
    OWNERS,
    REQUESTS,
    SHARE,
    STREAMS,
    TOPICS,
    TRANSACTIONS,
    Pick,
    build,
)
from tests.compat.node import DEFAULTS, running_node
from tools.apache_kafka import ApacheKafka

PORT, KAFKA_PORT = 28092, 28392
SASL_STEP, CONTROLLER_STEP = 10, 100
ADMIN, ANONYMOUS = "admin", "ANONYMOUS"
USERS = (ADMIN, *OWNERS)
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SETTLE_SECONDS_MAX = 60
#: The callers: each with its listener, by the distance from the first port, and its login.
CALLERS = [
    ("PLAINTEXT", 0, None),
    *(("SASL", SASL_STEP, user) for user in OWNERS),
    *(("CONTROLLER", CONTROLLER_STEP, user) for user in OWNERS),
]
NAMES = {
    TOPIC: TOPICS[:-1], GROUP: GROUPS, TRANSACTIONAL_ID: TRANSACTIONS, CLUSTER: (CLUSTER_NAME,), DELEGATION_TOKEN: ("t",),
    USER: tuple(f"User:{name}" for name in (*OWNERS, "carol")),
}  # fmt: skip
#: The topic of the share group.
SHARED = TOPICS[2]
PREFIXES = {TOPIC: ("apple", "b"), GROUP: ("goats", "h"), TRANSACTIONAL_ID: ("pay",), USER: ("User:",)}
#: The fields of a structure in a response that are compared, besides its elements.
COMPARED = {
    "error_code", "partition_error_code", "topic_config_error_code", "acknowledge_error_code", "name", "topic", "topic_name",
    "topic_id", "group_id", "transactional_id", "resource_name", "resource_type", "partition_index", "partition",
    "authorized_operations", "topic_authorized_operations", "cluster_authorized_operations", "key", "status_code",
    "principal_name", "subscribed_topic_names",
}  # fmt: skip
#: Fields that differ for other reasons than authorization: configurations by version, members by their addresses.
LEFT_OUT = {"configs", "brokers", "controllers", "nodes", "api_keys", "supported_features", "node_endpoints", "log_dir"}


#: Properties of Ottla's node only.
BESIDE_KAFKA = {"group.initial.rebalance.delay.ms": "0", "ottla.advertised.release": "4.3.1"}


def properties(port: int) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}"' for name in USERS)
    login = f'{PLAIN} username="{ADMIN}" password="{ADMIN}" {users};'
    clients = f"PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{port + SASL_STEP}"
    return {
        "listeners": f"{clients},CONTROLLER://127.0.0.1:{port + CONTROLLER_STEP}",
        "advertised.listeners": clients,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{port + CONTROLLER_STEP}",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "SASL",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
        "super.users": f"User:{ADMIN}",
        "authorizer.class.name": DEFAULTS["authorizer.class.name"],
        "allow.everyone.if.no.acl.found": "false",
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",
        "num.partitions": "1",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "delegation.token.secret.key": "planted-key",
    }


class Server:
    """One of the two servers, with the connections of all callers."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.admin = self.connect(SASL_STEP, ADMIN)
        self.controller_admin = self.connect(CONTROLLER_STEP, ADMIN)
        self.callers: dict[int, Wire] = {}
        self.tokens = 0
        self.own: dict[str, bytes] = {"uuid:none": ZERO_UUID, "uuid:ghost": b"g" * 16, "bytes:none": b"x" * 32}
        self.members: dict[str, tuple[str, int]] = {}

    def connect(self, step: int, user: str | None) -> Wire:
        wire = Wire(self.port + step)
        if user is not None:
            assert not wire.request(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code
            token = f"\0{user}\0{user}".encode()
            assert not wire.request(SaslAuthenticateRequest(auth_bytes=token), 2).error_code
        return wire

    def caller(self, index: int) -> Wire:
        if index not in self.callers:
            _, step, user = CALLERS[index]
            self.callers[index] = self.connect(step, user)
        return self.callers[index]

    def versions(self, index: int) -> dict[int, tuple[int, int]]:
        answer = self.caller(index).request(ApiVersionsRequest("compat", "1"), 3)
        return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def prepare(self) -> None:
        self.create("doomed", *TOPICS[:-1])
        for kind, key in ((0, CLASSIC), (1, TRANSACTIONS[0])):
            _until(lambda k=kind, n=key: not self._found(k, n))
        _until(lambda: not self.admin.request(InitProducerIdRequest(TRANSACTIONS[0], 60_000), 4).error_code)
        _until(
            lambda: (
                not any(
                    row.error_code
                    for topic in self.admin.request(commit(CLASSIC, *TOPICS[:2]), 8).topics
                    for row in topic.partitions
                )
            )
        )
        for index, (_, step, user) in enumerate(CALLERS):
            if step == SASL_STEP:
                answer = self.caller(index).request(CreateDelegationTokenRequest(max_lifetime_ms=-1), 2)
                assert not answer.error_code, answer
                self.own[f"bytes:{user}"] = bytes(answer.hmac)
                self.token_made()
        _until(self.is_settled)

    def is_settled(self) -> bool:
        """Return whether all members are there, the share group's member has its assignment, and its topic has the state which
        heartbeats make.
        """
        self.beat()
        [group] = self.admin.request(ShareGroupDescribeRequest(group_ids=[SHARE]), 1).groups
        if not group.members or not all(member.assignment.topic_partitions for member in group.members):
            return False
        partitions = [ReadStatePartition(0)]
        topics = [ReadStateTopic(self.own[f"uuid:{SHARED}"], partitions)]
        answer = self.admin.request(share_state.ReadShareGroupStateSummaryRequest(SHARE, topics), 0)
        return not answer.results[0].partitions[0].error_code

    def token_made(self) -> None:
        self.tokens += 1
        _until(lambda: len(self.admin.request(DescribeDelegationTokenRequest(None), 2).tokens) == self.tokens)

    def _found(self, kind: int, key: str) -> int:
        answer = self.admin.request(FindCoordinatorRequest(coordinator_keys=[key], key_type=kind), 4)
        return int(answer.coordinators[0].error_code)

    def create(self, *names: str) -> None:
        rows = [CreatableTopic(name, 1, 1) for name in names]
        made = {}
        for row in self.admin.request(CreateTopicsRequest(rows, 10_000), 7).topics:
            assert row.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), row
            if not row.error_code:
                made[row.name] = bytes(row.topic_id)

        def known() -> bool:
            answer = self.admin.request(MetadataRequest(None, False), 12)
            found = {topic.name: bytes(topic.topic_id) for topic in answer.topics}
            self.own |= {f"uuid:{name}": topic_id for name, topic_id in found.items()}
            return set(names) <= set(found) and made.items() <= found.items()

        _until(known)

    def beat(self) -> None:
        """Send the heartbeats of the member in each of the newer groups: it stays, so that descriptions have topics that a
        principal may not see.
        """
        for group, request in (
            (
                CONSUMER,
                ConsumerGroupHeartbeatRequest(rebalance_timeout_ms=60_000, subscribed_topic_names=list(TOPICS[:2])),
            ),
            (SHARE, ShareGroupHeartbeatRequest(subscribed_topic_names=[SHARED])),
            (
                STREAMS,
                StreamsGroupHeartbeatRequest(
                    rebalance_timeout_ms=60_000,
                    topology=Topology(0, [Subtopology("0", [TOPICS[0]])]),
                    process_id="p",
                ),
            ),
        ):

            def beaten(group: str = group, request: Any = request) -> bool:
                request.group_id = group
                request.member_id, request.member_epoch = self.members.get(group, (secrets.token_hex(8), 0))
                for name in ("topic_partitions", "active_tasks", "standby_tasks", "warmup_tasks"):
                    if hasattr(request, name):
                        setattr(request, name, None if request.member_epoch else [])
                if request.member_epoch and hasattr(request, "topology"):
                    request.topology = request.process_id = None
                    request.rebalance_timeout_ms = -1
                answer = self.admin.request(request, 1 if group == SHARE else 0)
                self.members.pop(group, None)
                if not answer.error_code:
                    self.members[group] = answer.member_id, answer.member_epoch
                return not answer.error_code

            _until(beaten)

    def change_acls(self, entries: set[tuple[Any, ...]]) -> None:
        everything = DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)])
        assert not self.admin.request(everything, 3).filter_results[0].error_code
        rows = [AclCreation(*entry) for entry in sorted(entries)]
        assert not any(row.error_code for row in self.admin.request(CreateAclsRequest(rows), 3).results)
        for wire in (self.admin, self.controller_admin):
            _until(lambda w=wire: _described(w) == entries)

    def answer(self, index: int, api_key: ApiKey, version: int, spec: dict[str, Any]) -> object:
        wire = self.caller(index)
        request = build(APIS[api_key].request, spec, version, self.own)
        wire.send(request, version)
        try:
            answer = wire.receive(api_key, version)
        except ConnectionResetError:
            del self.callers[index]
            return "closed"
        names = {value: key.partition(":")[2] for key, value in self.own.items() if key.startswith("uuid:")}
        return _shown(answer, names)


def _until(condition: Any) -> None:
    deadline = time.monotonic() + SETTLE_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, "the server did not settle"
        time.sleep(0.02)


def _described(wire: Wire) -> set[tuple[Any, ...]]:
    answer = wire.request(DescribeAclsRequest(1, None, 1, None, None, 1, 1), 3)
    return {
        (r.resource_type, r.resource_name, r.pattern_type, a.principal, a.host, a.operation, a.permission_type)
        for r in answer.resources
        for a in r.acls
    }


def _shown(value: Any, names: dict[bytes, str]) -> object:
    """Return the compared parts of a response, as text and lists; the order of elements does not count."""
    if isinstance(value, list):
        return sorted((_shown(each, names) for each in value), key=repr)
    if isinstance(value, bytes | memoryview):
        return names.get(bytes(value), "another id")
    if not isinstance(value, Struct):
        return int(value) if isinstance(value, int) else value
    shown = {}
    for name in value.__field_names__:
        each = getattr(value, name)
        nested = isinstance(each, Struct) or (isinstance(each, list) and each and isinstance(each[0], Struct))
        if name not in LEFT_OUT and (name in COMPARED or nested):
            shown[name] = _shown(each, names)
    return shown


def random_entries(rng: random.Random) -> set[tuple[Any, ...]]:
    entries = set()
    for _ in range(rng.choice([6, 20, 60])):
        kind = rng.choice(
            [TOPIC, TOPIC, TOPIC, GROUP, GROUP, GROUP, TRANSACTIONAL_ID, CLUSTER, CLUSTER, DELEGATION_TOKEN, USER]
        )
        pattern = PREFIXED if kind in PREFIXES and rng.random() < 0.3 else LITERAL
        name = rng.choice(
            PREFIXES[kind] if pattern == PREFIXED else [*NAMES[kind], *([] if kind == CLUSTER else [WILDCARD])]
        )
        principal = rng.choice([*OWNERS, *OWNERS, ANONYMOUS, WILDCARD])
        host = rng.choice([WILDCARD, WILDCARD, "127.0.0.1", "10.0.0.1"])
        operation = rng.choice([*SUPPORTED_OPERATIONS[kind], ALL])
        permission = ALLOW if rng.random() < 0.85 else DENY
        entries.add((kind, name, pattern, f"User:{principal}", host, operation, permission))
    return entries


class Difference(NamedTuple):
    """A request that the two servers answered differently."""

    api: str
    version: int
    caller: str
    spec: dict[str, Any]
    kafka: object
    own: object
    entries: set[tuple[Any, ...]]

    def __str__(self) -> str:
        return f"{self.api} v{self.version} {self.caller}\n  {self.spec}\n  Kafka {self.kafka}\n  here  {self.own}\n  {sorted(self.entries)}"


class Comparison:
    def __init__(self, kafka: Server, own: Server, seed: int) -> None:
        self.kafka, self.own = kafka, own
        self.rng = random.Random(seed)
        self.counted: Counter[str] = Counter()
        self.denied = 0
        self.differences: list[Difference] = []
        self.served = [self._served(index) for index in range(len(CALLERS))]

    @property
    def summary(self) -> str:
        apis = {name.partition(" ")[2] for name in self.counted}
        return f"{self.counted.total()} requests of {len(apis)} APIs, {self.denied} of them denied in whole or in part"

    def _served(self, index: int) -> dict[ApiKey, tuple[int, int]]:
        theirs, ours = self.kafka.versions(index), self.own.versions(index)
        common = {}
        for key in theirs.keys() & ours.keys() & REQUESTS.keys():
            lowest = max(theirs[key][0], ours[key][0], APIS[ApiKey(key)].min_version)
            common[ApiKey(key)] = lowest, min(theirs[key][1], ours[key][1])
        return common

    def world(self, rounds: int) -> None:
        entries = random_entries(self.rng)
        for server in (self.kafka, self.own):
            _until(server.is_settled)
            server.change_acls(entries)
        pick = Pick(self.rng)
        for index in range(len(CALLERS)):
            for api_key, (lowest, highest) in sorted(self.served[index].items()):
                for _ in range(rounds):
                    version = self.rng.randint(lowest, highest)
                    self._ask(index, api_key, version, REQUESTS[api_key](pick, version), entries)

    def _ask(
        self, index: int, api_key: ApiKey, version: int, spec: dict[str, Any], entries: set[tuple[Any, ...]]
    ) -> None:
        theirs = self.kafka.answer(index, api_key, version, spec)
        ours = self.own.answer(index, api_key, version, spec)
        listener, _, user = CALLERS[index]
        self.counted[f"{listener} {api_key.name}"] += 1
        self.denied += "AUTHORIZATION_FAILED" in repr(_errors(theirs))
        if theirs != ours and not _is_intended(listener, api_key, theirs, ours):
            self.differences.append(
                Difference(api_key.name, version, f"{listener} {user}", spec, theirs, ours, entries)
            )
        if api_key == ApiKey.DELETE_TOPICS:
            for server in (self.kafka, self.own):
                server.create("doomed")
        if api_key == ApiKey.CREATE_DELEGATION_TOKEN:
            for server, answer in ((self.kafka, theirs), (self.own, ours)):
                if isinstance(answer, dict) and not answer["error_code"]:
                    server.token_made()


def _is_intended(listener: str, api_key: ApiKey, theirs: object, ours: object) -> bool:
    """Return whether the difference is one of docs/DIFFERENCES.md."""
    if api_key == ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS:  # a controller of Kafka 4.3.1 advertises the API, and fails
        return listener == "CONTROLLER" and "UNKNOWN_SERVER_ERROR" in _errors(theirs)
    if (
        api_key == ApiKey.SHARE_FETCH
    ):  # the time at which a partition's state is read decides which of the allowed partitions has records
        return _denied_topics(theirs) == _denied_topics(ours)
    # Ottla's response does not have the ids of topics that the principal may not see.
    return api_key == ApiKey.ALTER_SHARE_GROUP_OFFSETS and _without_ids(theirs) == _without_ids(ours)


def _denied_topics(shown: Any) -> object:
    """Return the error of a ShareFetch, and the topics that the principal may not read."""
    if not isinstance(shown, dict):
        return shown
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return shown["error_code"], [
        topic["topic_id"] for topic in shown.get("responses", []) if topic["partitions"][0]["error_code"] == denied
    ]


def _without_ids(shown: object) -> object:
    if isinstance(shown, list):
        return [_without_ids(each) for each in shown]
    if not isinstance(shown, dict):
        return shown
    return {name: _without_ids(each) for name, each in shown.items() if name != "topic_id"}


def _errors(shown: object) -> set[str]:
    if isinstance(shown, list):
        return set().union(*map(_errors, shown)) if shown else set()
    if not isinstance(shown, dict):
        return set()
    own = {
        ErrorCode(code).name for name, code in shown.items() if name.endswith("error_code") and isinstance(code, int)
    }
    return own.union(*map(_errors, shown.values()))


@contextmanager
def both(directory: Path) -> Iterator[tuple[Server, Server]]:
    own = properties(PORT)
    with (
        ApacheKafka(KAFKA_PORT, data=directory / "kafka", properties=properties(KAFKA_PORT)),
        running_node(PORT, directory / "node.log", node_id=1, **own, **BESIDE_KAFKA),
    ):
        servers = Server(KAFKA_PORT), Server(PORT)
        for server in servers:
            server.prepare()
        yield servers


def compare(directory: Path, seed: int, worlds: int, rounds: int = 1) -> Comparison:
    with both(directory) as (kafka, own):
        comparison = Comparison(kafka, own, seed)
        for _ in range(worlds):
            comparison.world(rounds)
    return comparison
