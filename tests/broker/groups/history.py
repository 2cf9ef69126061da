"""Random histories of one group on a coordinator whose log is in memory, checked against the invariants by their numbers.

A seed makes a few members with protocols, topics and instance ids that change, requests in any order, commits that are late
or refused, elections with the whole log and without its uncommitted tail, deleted groups and topics. The numbers are those of
docs/dev/INVARIANTS.md; 0 stands for a request that is never answered, or twice, and 21 for memory that differs from the log.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from ottla.broker.coordinator.outcome import Producer
from ottla.broker.groups.classic.classic_group import NO_TIMESTAMP, subscription_topics
from ottla.broker.groups.classic.classic_member import EMPTY, STABLE
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataKey
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.records.control import EndTxnMarker
from tests.broker.groups.harness import TP, GroupClient, GroupCoordinatorHarness
from tests.broker.groups.replayed import compacted, group_view, replayed
from tests.histories import Violation, draw

PROTOCOLS = ("range", "range", "roundrobin,range", "range,roundrobin", "roundrobin", "cooperative-sticky,range")
TOPICS = ("t", "t,u", "u", "t,u")
RETENTION_MS = 60_000
PRODUCERS = (7, 8)


class Register:
    """The offsets that may be read as the committed one of one topic: the newest acknowledged one, or a later attempt."""

    def __init__(self) -> None:
        self.acknowledged = -1
        self.acknowledged_ms = 0
        # The offsets of transactions that are open or aborted.
        self.hidden: set[int] = set()
        # Since the last acknowledgement: whether a client has deleted the offset, and whether the offset may expire because the
        # group did not read the topic.
        self.is_deleted = True
        self.may_expire = True
        self.deletions = 0

    def committed(self, offset: int, now_ms: int) -> None:
        if offset > self.acknowledged or self.is_deleted:
            self.acknowledged, self.acknowledged_ms = offset, now_ms
            self.is_deleted = self.may_expire = False

    def check(self, found: int, now_ms: int) -> None:
        if found in self.hidden:
            raise Violation("31", f"offset {found} is of a transaction that is open or aborted")
        if self.is_deleted or found >= self.acknowledged:
            return
        if found >= 0:
            raise Violation("39", f"offset {found} is found after {self.acknowledged} was acknowledged")
        age_ms = now_ms - self.acknowledged_ms
        if age_ms < RETENTION_MS:
            raise Violation("39", f"offset {self.acknowledged} is gone after {age_ms} ms")
        if not self.may_expire:
            raise Violation("40", f"offset {self.acknowledged} is gone, and the group reads its topic")


def has_record(shard: GroupMetadataManager, group_id: str) -> bool:
    """Return whether the group has a record of its own, and not only committed offsets."""
    group = shard.groups.get(group_id)
    return group is not None and group.state_timestamp_ms != NO_TIMESTAMP


class History:
    """The history of one seed."""

    def __init__(self, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.harness = GroupCoordinatorHarness(
            group_max_size=rng.choice([3, 5, 100]),
            group_initial_rebalance_delay_ms=rng.choice([0, 1000, 3000]),
            offsets_retention_ms=RETENTION_MS,
            offsets_retention_check_interval_ms=10_000,
        )
        self.clients = [self._client(f"c{number}") for number in range(rng.randint(1, 5))]
        self.open: dict[int, str] = {}
        self._asked = 0
        self.registers = {topic: Register() for topic in ("t", "u")}
        self._offset = 0
        # What responses have said: the newest generation, the assignment of each generation, the holder of each instance id.
        self.generation = -1
        self.assigned_by: dict[int, bytes] = {}
        self.former: set[str] = set()
        self.holders: dict[str, str] = {}
        # The pending offsets of each producer.
        self.transactions: dict[int, dict[str, int]] = {}
        self._scan_from_the_start()

    def _client(self, name: str) -> GroupClient:
        rng = self.rng
        return self.harness.client(
            name,
            instance=rng.choice([None, None, "i1", "i2"]),
            session=rng.choice([6_000, 10_000, 30_000]),
            rebalance=rng.choice([1_000, 5_000, 60_000]),
            protocols=rng.choice(PROTOCOLS),
            topics=rng.choice(TOPICS),
            version=rng.choice([3, 4, 5, 9]),
            type=rng.choice(["consumer"] * 9 + ["connect"]),
        )

    def run(self) -> None:
        for _ in range(self.rng.randint(20, 120)):
            getattr(self, f"_{draw(self.rng, ACTIONS)}")(self.rng.choice(self.clients))
            self._look()
        self._end()

    # ---- requests

    def _ask(
        self, what: str, send: Callable[..., Any], *args: Any, then: Callable[[Any], None], **options: Any
    ) -> None:
        self._asked += 1
        number = self._asked
        self.open[number] = what

        def receive(response: Any) -> None:
            if self.open.pop(number, None) is None:
                raise Violation("0", f"{what} is answered twice")
            then(response)

        send(receive, *args, **options)

    def _join(self, client: GroupClient) -> None:
        asked_as = client.member_id

        def joined(response: Any) -> None:
            if response.error_code != ErrorCode.NONE:
                self._forget_if_unknown(client, response.error_code)
                return
            if client.instance is not None:
                before = self.holders.get(client.instance)
                self.holders[client.instance] = response.member_id
                if before not in (None, response.member_id):
                    self.former.add(str(before))
            if asked_as in self.former and client.instance is not None:
                raise Violation("41", f"{asked_as} joins though {client.instance} is held by another")

        self._ask("join", client.join, then=joined)

    def _settle(self, client: GroupClient) -> None:
        """Let all members do what real clients do."""
        for _ in range(2):
            for member in self.clients:
                self._join(member)
        self.harness.clock.advance(3_000)
        for member in self.clients:
            self._assign(member)

    def _fetch_all(self, client: GroupClient) -> None:
        for topic in self.registers:
            self._fetch_one(client, topic)

    def _sync(self, client: GroupClient) -> None:
        self._sync_with(client, {})

    def _assign(self, client: GroupClient) -> None:
        group = self.harness.coordinator.runtime._contexts[0].shard.groups.get("g")
        token = str(self._asked).encode()
        self._sync_with(client, dict.fromkeys([] if group is None else group.members, token))

    def _sync_with(self, client: GroupClient, assignments: dict[str, bytes]) -> None:
        generation, member_id = client.generation, client.member_id

        def synced(response: Any) -> None:
            if response.error_code != ErrorCode.NONE:
                self._forget_if_unknown(client, response.error_code)
                return
            self._check_not_former(member_id, client, "sync")
            # The result of JoinGroup is not in the log yet, and lost when the coordinator moves.
            self.generation = max(self.generation, generation)
            if response.assignment:
                known = self.assigned_by.setdefault(generation, response.assignment)
                if known != response.assignment:
                    raise Violation("37", f"generation {generation} is assigned by two leaders")

        self._ask("sync", client.sync, assignments, then=synced)

    def _heartbeat(self, client: GroupClient) -> None:
        member_id, generation, newest = client.member_id, client.generation, self.generation

        def beaten(response: Any) -> None:
            if response.error_code == ErrorCode.NONE:
                self._check_not_former(member_id, client, "heartbeat")
                if generation < newest:
                    raise Violation("38", f"a heartbeat of generation {generation} is taken, there is {newest}")
            self._forget_if_unknown(client, response.error_code)

        self._ask("heartbeat", client.heartbeat, then=beaten)

    def _check_not_former(self, member_id: str, client: GroupClient, what: str) -> None:
        if client.instance is not None and member_id in self.former:
            raise Violation("41", f"a {what} of {member_id} is taken, {client.instance} is held by another")

    def _forget_if_unknown(self, client: GroupClient, code: int) -> None:
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID) and self.rng.random() < 0.7:
            client.member_id, client.generation = "", -1

    def _leave(self, client: GroupClient) -> None:
        self._ask("leave", client.leave, then=lambda response: None)

    def _leave_by_instance(self, client: GroupClient) -> None:
        self._ask("leave", client.leave, member="", then=lambda response: None)

    # ---- offsets

    def _commit(self, client: GroupClient) -> None:
        topic = self.rng.choice(("t", "u"))
        offset, register = self._next_offset(), self.registers[topic]
        member_id, generation, newest = client.member_id, client.generation, self.generation
        deletions = register.deletions

        def committed(response: Any) -> None:
            if response.topics[0].partitions[0].error_code != ErrorCode.NONE:
                return
            if 0 <= generation < newest:
                raise Violation("38", f"a commit of generation {generation} is taken, there is {newest}")
            self._check_not_former(member_id, client, "commit")
            if register.deletions == deletions:
                register.committed(offset, self.harness.clock.now_ms)

        self._ask("commit", client.commit, offsets={(topic, 0): offset}, then=committed)

    def _next_offset(self) -> int:
        self._offset += 1
        return self._offset

    def _fetch(self, client: GroupClient) -> None:
        self._fetch_one(client, self.rng.choice(("t", "u")))

    def _fetch_one(self, client: GroupClient, topic: str) -> None:
        register = self.registers[topic]

        def fetched(response: Any) -> None:
            if response.error_code == ErrorCode.NONE:
                register.check(response.topics[0].partitions[0].committed_offset, self.harness.clock.now_ms)

        self._ask("fetch", client.fetch, partitions=[(topic, 0)], then=fetched)

    def _forget_offsets(self, client: GroupClient) -> None:
        topic = self.rng.choice(("t", "u"))
        subscribed = self._is_subscribed(topic)

        def deleted(response: Any) -> None:
            if response.error_code or not response.topics:
                return
            code = response.topics[0].partitions[0].error_code
            if code == ErrorCode.NONE and subscribed:
                raise Violation("40", f"the offset of {topic} is deleted, and the group is subscribed to it")

        self._may_be_deleted(topic)
        self._ask("offset delete", client.delete_offsets, partitions=[(topic, 0)], then=deleted)

    def _commit_in_transaction(self, client: GroupClient) -> None:
        if self.harness.log.hold:
            return
        topic, producer_id = self.rng.choice(("t", "u")), self.rng.choice(PRODUCERS)
        offset, register = self._next_offset(), self.registers[topic]
        register.hidden.add(offset)
        request = TxnOffsetCommitRequest(
            group_id="g",
            producer_id=producer_id,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    topic, partitions=[TxnOffsetCommitRequestPartition(0, committed_offset=offset)]
                )
            ],
        )
        answer = self.harness.coordinator.commit_transactional_offsets(request)
        self.transactions.setdefault(producer_id, {})
        if answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            self.transactions[producer_id][topic] = offset

    def _end_transaction(self, client: GroupClient) -> None:
        producer_id, commit = self.rng.choice(PRODUCERS), self.rng.random() < 0.6
        if self.harness.log.hold or self.harness.log.refuse is not None:
            return
        self._end_one(producer_id, commit=commit)

    def _end_one(self, producer_id: int, *, commit: bool) -> None:
        offsets = self.transactions.pop(producer_id, {})
        for topic, offset in offsets.items():
            if commit:
                self.registers[topic].hidden.discard(offset)
        error = self.harness.coordinator.runtime.end_transaction(
            0, Producer(producer_id, 0), EndTxnMarker(commit, 1), 0
        )
        if error == ErrorCode.NONE and commit:
            for topic, offset in offsets.items():
                self.registers[topic].committed(offset, self.harness.clock.now_ms)

    # ---- what happens

    def _wait(self, client: GroupClient) -> None:
        self.harness.clock.advance(self.rng.choice([1, 10, 500, 1_000, 3_000, 6_000, 10_000, 61_000]))

    def _wait_among_the_living(self, client: GroupClient) -> None:
        """Wait for longer than offsets are kept, while members send heartbeats."""
        for _ in range(30):
            self.harness.clock.advance(3_000)
            for member in self.clients:
                if member.generation >= 0:
                    self._heartbeat(member)
            self._look()

    def _move(self, client: GroupClient) -> None:
        """Let another broker lead the partition, with the whole log."""
        self._release(client)
        self._restart()

    def _fail_over(self, client: GroupClient) -> None:
        """Let another broker lead the partition, without the uncommitted records."""
        self.harness.log.truncate(TP)
        self.harness.log.hold, self.harness.log.refuse = False, None
        self._restart()
        self._scan_from_the_start()
        # Which pending offsets are lost is known from the log alone: all open transactions are aborted.
        self.transactions.clear()
        for producer_id in PRODUCERS:
            self._end_one(producer_id, commit=False)
        self._fetch_all(client)

    def _restart(self) -> None:
        self.harness.restart()
        # A new holder of an instance id is in the log only when the rebalance has ended.
        self.former.clear()
        self.holders.clear()
        self._check_fold()

    def _hold(self, client: GroupClient) -> None:
        self.harness.log.hold = True

    def _release(self, client: GroupClient) -> None:
        self.harness.log.hold = False
        self.harness.log.release(TP)

    def _refuse(self, client: GroupClient) -> None:
        self.harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def _accept(self, client: GroupClient) -> None:
        self.harness.log.refuse = None

    def _forget_id(self, client: GroupClient) -> None:
        client.member_id, client.generation = "", -1

    def _change(self, client: GroupClient) -> None:
        client.protocols, client.topics = self.rng.choice(PROTOCOLS), self.rng.choice(TOPICS)

    def _wrong_generation(self, client: GroupClient) -> None:
        client.generation += self.rng.choice([-1, 1])

    def _delete_group(self, client: GroupClient) -> None:
        for topic in self.registers:
            self._may_be_deleted(topic)
        self._ask("delete", self._delete_groups, then=self._deleted)

    def _delete_groups(self, receive: Callable[[Any], None]) -> None:
        answer = self.harness.delete_groups(["g"])
        if isinstance(answer, list):
            receive(answer)
        else:
            answer.when_done(receive)

    def _deleted(self, results: Any) -> None:
        if results[0].error_code == ErrorCode.NONE and not self.open:
            self._start_over()
            if self.harness.coordinator.runtime._contexts[0].shard.offsets.of_group("g"):
                raise Violation("25", "offsets of a deleted group are there")

    def _delete_topic(self, client: GroupClient) -> None:
        self._may_be_deleted("u")
        self.harness.coordinator.on_topics_deleted(["u"])

    def _may_be_deleted(self, topic: str) -> None:
        """Note that the topic's offsets may be deleted, pending ones included: whether they are is not known before the
        response.
        """
        self.registers[topic].is_deleted = True
        self.registers[topic].deletions += 1
        for offsets in self.transactions.values():
            if (offset := offsets.pop(topic, None)) is not None:
                self.registers[topic].hidden.discard(offset)

    # ---- checks

    def _start_over(self) -> None:
        """Forget the last generation: a group that was deleted and created again counts its generations from the start."""
        self.generation = -1
        self.assigned_by.clear()

    def _recorded(self) -> Any:
        """Return the group's newest record, from the log alone."""
        if self.harness.log.end_offset(TP) <= self._scanned:
            return self._newest
        for offset, key, value in self.harness.records(self._scanned):
            self._scanned = offset + 1
            if type(key) is GroupMetadataKey:
                self._newest = value
        return self._newest

    def _scan_from_the_start(self) -> None:
        self._scanned = 0
        self._newest: Any = None

    def _is_subscribed(self, topic: str) -> bool:
        """Return whether the newest record of a group that is at rest subscribes to the topic."""
        context = self.harness.coordinator.runtime._contexts[0]
        group = context.shard.groups.get("g")
        value = self._recorded()
        if group is None or group.state is not STABLE or value is None or value.protocol_type != "consumer":
            return False
        return any(topic in subscription_topics(bytes(member.subscription)) for member in value.members)

    def _look(self) -> None:
        group = self.harness.coordinator.runtime._contexts[0].shard.groups.get("g")
        if group is None or (group.generation < self.generation and group.state is EMPTY):
            self._start_over()
        for topic, register in self.registers.items():
            if not self._is_subscribed(topic):
                register.is_deleted = True

    def _check_fold(self) -> None:
        shard, records = self.harness.shard, self.harness.records()
        settled = [group_id for group_id, group in shard.groups.items() if group.state in (STABLE, EMPTY)]
        for known in (records, compacted(records)):
            again = replayed(known)
            for group_id in settled:
                if not has_record(shard, group_id) and not has_record(again, group_id):
                    continue
                if group_id not in again.groups:
                    raise Violation("21", f"memory has {group_view(shard, group_id)}, the log has nothing")
                if group_view(again, group_id) != group_view(shard, group_id):
                    raise Violation(
                        "21", f"the log says {group_view(again, group_id)}, memory {group_view(shard, group_id)}"
                    )

    def _end(self) -> None:
        """End all faults, and let all members fall silent."""
        self.harness.log.refuse = None
        self._release(self.clients[0])
        self._check_fold()
        self._fetch_all(self.clients[0])
        for _ in range(40):
            self.harness.clock.advance(30_000)
        if self.open:
            raise Violation("0", f"never answered: {sorted(self.open.values())}")
        left = [group.state.value for group in self.harness.shard.groups.values() if group.state is not EMPTY]
        if left:
            raise Violation("42", f"a group of silent members is {left}")


#: The weight of each action.
ACTIONS = {
    "settle": 8,
    "join": 20,
    "sync": 8,
    "assign": 12,
    "heartbeat": 15,
    "leave": 4,
    "leave_by_instance": 2,
    "commit": 12,
    "fetch": 8,
    "forget_offsets": 2,
    "commit_in_transaction": 3,
    "end_transaction": 3,
    "wait": 15,
    "wait_among_the_living": 1,
    "move": 2,
    "fail_over": 3,
    "hold": 3,
    "release": 5,
    "refuse": 1,
    "accept": 3,
    "forget_id": 3,
    "change": 8,
    "wrong_generation": 5,
    "delete_group": 1,
    "delete_topic": 1,
}
