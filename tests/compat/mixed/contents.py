"""All state that a broker keeps for its users. It is made at one node and checked at the next: a change of kind may not lose
any of it.

contents = Contents(mixed)
contents.fill()                # at the first kind
contents.fill_new_groups()     # once the cluster has the features of 4.3
contents.check()               # after each change; it also goes on: more records, offsets, transactions
"""

from __future__ import annotations

import json
import time

from confluent_kafka import Producer

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.groups.streams.topologies import stateless
from tests.broker.share.member import ACCEPT, RELEASE, ShareMember, delivered, set_group
from tests.broker.wire import Wire
from tests.compat.mixed import clients
from tests.compat.mixed.nodes import WAIT_SECONDS_MAX, Mixed, Node, NotSo, until
from tests.compat.upgrade import expect_same, rows
from tests.ottla.conftest import Cli, Finished

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: The topics, each of one partition with all nodes as replicas.
RECORDS, CHANGES, COMPACTED, OPEN, SHARED = "records", "changes", "compacted", "open", "shared"
CLASSIC, CONSUMER, SHARE, STREAMS = "classic", "consumer", "share", "streams"
NEW_PROTOCOL = {"group.protocol": "consumer"}
#: The wire versions that Apache Kafka 4.3.1 has.
HEARTBEAT, OFFSET_FETCH, OFFSET_COMMIT, EPOCHS, FIND = 0, 9, 9, 4, 6
KEYS = 20
#: The list commands may show a difference for a moment; after this many looks it counts.
LOOKS, GROUPS_SECONDS_MAX = 30, 120
#: Settings that a user has made by the commands of `ottla`. Kafka's brokers serve these commands, too.
SETTINGS = (
    "acl add alice read topic:records", "acl add bob write topic:re --prefixed --deny", "quota set user alice producer_byte_rate=1048576",
    "quota set user <default> --client-id app consumer_byte_rate=5000", "config set topic records retention.ms=86400000",
    "config set broker all log.cleaner.threads=2",
)  # fmt: skip
#: The commands that list these settings, and the other state that must be the same before and after.
LISTS = (
    "topic list", "topic describe records", "topic describe compacted", "config get topic records --changed", "user list", "quota list",
    "acl list", "group list",
)  # fmt: skip
PASSWORD = "planted-password"
MECHANISM = "SCRAM-SHA-256"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ALICE = f'{SCRAM} username="alice" password="{PASSWORD}";'
#: The settings of a node with a listener for SCRAM, delegation tokens and an authorizer.
LOGINS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
    "allow_everyone_if_no_acl_found": "true",
    "sasl_enabled_mechanisms": MECHANISM,
    "delegation_token_secret_key": "planted-key",
}


def with_logins(mixed: Mixed) -> None:
    """Give each node a third listener, for SCRAM."""
    for node in mixed.nodes.values():
        controller = f",CONTROLLER://{node.controller_address}" if "controller" in node.roles else ""
        node.own |= {
            "listeners": f"PLAINTEXT://{node.bootstrap},LOGIN://{node.login_bootstrap}{controller}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "listener.name.login.scram-sha-256.sasl.jaas.config": f"{SCRAM};",
        }


def logged_in(mixed: Mixed, login: str, node: Node, *words: str, stdin: str = "") -> Finished:
    """Run a command of `ottla` at the node's listener for SCRAM."""
    file = mixed.directory / "client.properties"
    file.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={MECHANISM}\nsasl.jaas.config={login}\n")
    return Cli(node.login_bootstrap)(*words, "--config", str(file), stdin=stdin)


class Contents:
    """The topics and records that were made, and therefore have to be there."""

    def __init__(self, mixed: Mixed) -> None:
        self.mixed = mixed
        self.replicas = sorted(node.id for node in mixed.nodes.values() if "broker" in node.roles)
        self.records: list[str] = []
        self.changes: list[str] = []
        self.keys: dict[str, str] = {}
        self.has_new_groups = False
        self._read = 0
        self._turn = 0
        self._streams_offset = 0
        self._shared: list[str] = []
        self._rows: dict[str, object] = {}
        self._epochs: dict[str, list[tuple[int, int]]] = {}
        self._open: Producer | None = None
        #: This producer lives through all changes, so that each kind goes on with the producer state of the other.
        self._producer: Producer | None = None
        self._token = ""
        self._looks = 0

    @property
    def _cli(self) -> Cli:
        return Cli(self.mixed.bootstrap)

    # -- Filling -------------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """Make records of all codecs, transactions (one stays open), a classic group, settings, users, tokens, ACLs and
        quotas.
        """
        self.mixed.create(RECORDS, [self.replicas])
        self.mixed.create(CHANGES, [self.replicas])
        self.mixed.create(COMPACTED, [self.replicas], cleanup_policy="compact")
        self.mixed.create(OPEN, [self.replicas])
        for topic in (RECORDS, CHANGES, COMPACTED, OPEN):
            self.mixed.wait_isr(topic, self.replicas)
        for codec in CODECS:
            values = [f"{codec} {i} " * 20 for i in range(100)]
            clients.produce(self.mixed.bootstrap, RECORDS, values, **{"compression.type": codec})
            self.records += values
        for words in SETTINGS:
            self._cli.ok(*words.split())
        self._cli.ok("user", "create", "alice", "--mechanism", MECHANISM, stdin=PASSWORD)
        until("alice logs in", lambda: self._as_alice("topic", "list").code == 0)
        made = json.loads(self._as_alice("token", "create", "-o", "json").out)
        self._token = f'{SCRAM} username="{made["token_id"]}" password="{made["hmac"]}" tokenauth="true";'
        self._begin_transaction()
        self.go_on()

    def fill_new_groups(self) -> None:
        """Make groups of the protocols that came with the versions 4.0 to 4.2."""
        self.mixed.create(SHARED, [self.replicas])
        self.mixed.wait_isr(SHARED, self.replicas)
        with self._wire() as wire:
            set_group(wire, SHARE, share_auto_offset_reset="earliest")
            self._find(wire, STREAMS, 0)
            joining = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
            request = StreamsGroupHeartbeatRequest(
                STREAMS,
                "member",
                0,
                rebalance_timeout_ms=60_000,
                process_id="p",
                topology=stateless(RECORDS),
                **joining,
            )
            answer = wire.request(request, HEARTBEAT)
            if answer.error_code:
                raise NotSo(f"streams group: {answer}")
            self._commit(wire, answer.member_epoch, 7)
            wire.request(StreamsGroupHeartbeatRequest(STREAMS, "member", -1), HEARTBEAT)
        self.has_new_groups = True
        clients.check_by_group(self.mixed.bootstrap, RECORDS, CONSUMER, self.records, **NEW_PROTOCOL)
        self._share()
        self._remember()

    # -- After a change ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that everything is there as it was left."""
        for topic in (RECORDS, CHANGES, COMPACTED, OPEN):
            self.mixed.wait_isr(topic, self.replicas)
        clients.check(self.mixed.bootstrap, RECORDS, self.records)
        clients.check(self.mixed.bootstrap, CHANGES, self.changes)
        found = dict(pair.split("=", 1) for pair in clients.read(self.mixed.bootstrap, COMPACTED))
        if found != self.keys:
            raise NotSo(f"{COMPACTED}: {found}, not {self.keys}")
        until("the same as before", self._is_as_before, GROUPS_SECONDS_MAX)
        for topic, before in self._epochs.items():
            if (now := self._epochs_of(topic))[: len(before) - 1] != before[:-1]:
                raise NotSo(f"leader epochs of {topic}: {now}, before they were {before}")
        until("alice logs in", lambda: self._as_alice("topic", "list").code == 0)
        until("the token logs in", lambda: self._by_token("topic", "list").code == 0)
        if self.has_new_groups and (offset := self._streams_committed()) != self._streams_offset:
            raise NotSo(f"the streams group's offset is {offset}, not {self._streams_offset}")

    def _is_as_before(self) -> bool:
        """Return whether the lists are the same again. ListGroups omits groups until their coordinator is loaded; a difference
        that stays is shown in full.
        """
        try:
            expect_same(self._rows, self._rows_now())
        except NotSo:
            self._looks += 1
            if self._looks % LOOKS == 0:
                raise
            return False
        self._looks = 0
        return True

    def go_on(self) -> None:
        """Add records, offsets and transactions of each kind, by clients that have lived through the change."""
        self._turn += 1
        if self._producer is None:
            self._producer = Producer(
                {"bootstrap.servers": self.mixed.bootstrap, "enable.idempotence": True, **clients.SILENT}
            )
        more = [f"turn {self._turn} {i}" for i in range(200)]
        clients.produce_by(self._producer, RECORDS, more)
        self.records += more
        more = [f"changed {self._turn} {i}" for i in range(10)]
        clients.transact(self.mixed.bootstrap, CHANGES, more, f"id-{self._turn % 2}")
        self.changes += more
        pairs = {f"key{i}": f"key{i}={self._turn}" for i in range(KEYS)}
        clients.produce(self.mixed.bootstrap, COMPACTED, list(pairs.values()), keys=list(pairs))
        self.keys = {key: text.partition("=")[2] for key, text in pairs.items()}
        clients.check_by_group(self.mixed.bootstrap, RECORDS, CLASSIC, self.records[self._read :])
        if self.has_new_groups:
            clients.check_by_group(self.mixed.bootstrap, RECORDS, CONSUMER, self.records[self._read :], **NEW_PROTOCOL)
            self._share()
        self._read = len(self.records)
        self._remember()

    def _remember(self) -> None:
        self._rows = self._rows_now()
        self._epochs = {topic: self._epochs_of(topic) for topic in (RECORDS, CHANGES)}

    def _rows_now(self) -> dict[str, object]:
        return rows(self._cli, LISTS)

    # -- A transaction that lives through a change ---------------------------------------------------------------------

    def _begin_transaction(self) -> None:
        settings = {"transactional.id": "open", "transaction.timeout.ms": 600_000, "message.timeout.ms": 600_000}
        self._open = Producer({"bootstrap.servers": self.mixed.bootstrap, **settings, **clients.SILENT})
        self._open.init_transactions(WAIT_SECONDS_MAX)
        self._open.begin_transaction()
        self._open.produce(OPEN, "before the change", partition=0)
        self._open.flush(WAIT_SECONDS_MAX)

    def commit_open_transaction(self) -> None:
        """End the open transaction by the producer that began it at the other kind. Until then its record is not visible."""
        assert self._open is not None
        clients.check(self.mixed.bootstrap, OPEN, [])
        self._open.produce(OPEN, "after the change", partition=0)
        self._open.commit_transaction(WAIT_SECONDS_MAX)
        clients.check(self.mixed.bootstrap, OPEN, ["before the change", "after the change"])

    # -- By the wire ---------------------------------------------------------------------------------------------------

    def _wire(self) -> Wire:
        return Wire(self.mixed.serving()[0].port)

    def _find(self, wire: Wire, key: str, kind: int) -> None:
        find = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        until(f"the coordinator of {key}", lambda: not wire.request(find, FIND).coordinators[0].error_code)

    def _commit(self, wire: Wire, member_epoch: int, offset: int) -> None:
        topic = OffsetCommitRequestTopic(RECORDS, partitions=[OffsetCommitRequestPartition(0, offset)])
        answer = wire.request(OffsetCommitRequest(STREAMS, member_epoch, "member", topics=[topic]), OFFSET_COMMIT)
        if code := answer.topics[0].partitions[0].error_code:
            raise NotSo(f"the streams group's offset: {ErrorCode(code).name}")
        self._streams_offset = offset

    def _streams_committed(self) -> int:
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(STREAMS, None, -1, None)])

        def committed() -> int | None:
            with self._wire() as wire:
                self._find(wire, STREAMS, 0)
                group = wire.request(request, OFFSET_FETCH).groups[0]
                return None if group.error_code else group.topics[0].partitions[0].committed_offset + 1

        found = until("the streams group's offsets", committed)
        assert found is not None
        return found - 1

    def _share(self) -> None:
        """Read the records of the share group. The first is released, and so is delivered again next time; the others are
        accepted.
        """
        before, more = self._shared, [f"shared {self._turn} {i}" for i in range(5)]
        clients.produce(self.mixed.bootstrap, SHARED, more)
        topic_id = self.mixed.metadata(SHARED).topics[0].topic_id
        expected, at = [*before, *more], (topic_id, 0)
        with self._wire() as wire:
            self._find(wire, SHARE, 0)
            member = ShareMember(wire, SHARE, [at])

            def joined() -> bool:
                answer = member.heartbeat([SHARED])
                return not answer.error_code and bool(answer.assignment and answer.assignment.topic_partitions)

            until("the share group's assignment", joined)
            taken: dict[int, str] = {}
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            while len(taken) < len(expected) and time.monotonic() < deadline:
                response = member.fetch_response()
                found = delivered(response).get(at) if not response.error_code else None
                taken |= (
                    {}
                    if found is None
                    else {offset: (value or b"").decode() for offset, value in found.records.items()}
                )
            if sorted(taken.values()) != sorted(expected):
                raise NotSo(
                    f"the share group got {len(taken)} like {sorted(taken.values())[:3]}, not {len(expected)} like {expected[0]}"
                )
            first, *others = sorted(taken)
            kept = member.acknowledge(at, (first, first, [RELEASE]), *((offset, offset, [ACCEPT]) for offset in others))
            if kept:
                raise NotSo(f"acknowledgement: {ErrorCode(kept).name}")
            self._shared = [taken[first]]
            member.leave()
            member.heartbeat(None, -1)

    def _epochs_of(self, topic: str) -> list[tuple[int, int]]:
        """Return the end offset of each leader epoch."""
        leader, _ = self.mixed.partitions(topic)[0]
        found: list[tuple[int, int]] = []
        with Wire(self.mixed.nodes[leader].port) as wire:
            for epoch in range(1_000):
                asked = OffsetForLeaderTopic(topic, [OffsetForLeaderPartition(0, -1, epoch)])
                answer = wire.request(OffsetForLeaderEpochRequest(topics=[asked]), EPOCHS).topics[0].partitions[0]
                if answer.error_code or answer.leader_epoch < 0 or (found and found[-1][0] == answer.leader_epoch):
                    break
                found.append((answer.leader_epoch, answer.end_offset))
        return found

    # -- Logins --------------------------------------------------------------------------------------------------------

    def _as_alice(self, *words: str) -> Finished:
        return self._logged_in(ALICE, *words)

    def _by_token(self, *words: str) -> Finished:
        return self._logged_in(self._token, *words)

    def _logged_in(self, login: str, *words: str) -> Finished:
        return logged_in(self.mixed, login, self.mixed.serving()[0], *words)
