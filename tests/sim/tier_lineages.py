"""Unclean elections with a store (KIP-405): the store has records that no log has any more, and none of them is read as another lineage's.

Brokers 1 to 3 have the one replica each of a partition that elects any broker that is there; 4 and 5 have `__remote_log_metadata`, and 6 is the
controller: nothing strikes those. In each round a replica is cut off from the others and falls behind; its leader copies what it has not; then
the others are killed, or the leader is cut off from the controller and goes on writing and copying beside it (a zombie). The replica
is elected, writes at the same offsets, and copies in its turn.

The truth is what a log has had at an offset in a leader epoch. Each batch of each Fetch, at any time, must be such a one; at the end all
offsets from the log start on can be read, and are of the last leader's lineage. Then all records are deleted, and the store has no
segment of any lineage.
"""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.broker.replication.partition import Partition
from ottla.broker.tiers import remote_retention
from ottla.broker.tiers.objects import OWNER
from ottla.broker.tiers.remote_segments import lineage_of
from ottla.controller.metadata.topic_names import REMOTE_LOG_METADATA_TOPIC
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.storage.directories.future_logs import agreement
from tests.histories import Violation
from tests.sim.clients.admin import Admin
from tests.sim.clients.connection import BACKOFF_SECONDS, Client, Unreachable
from tests.sim.cluster import BROKER_PORT, SimCluster, SimNode
from tests.sim.history import History
from tests.sim.loop import run
from tests.sim.tier_history import TiersBroken
from tests.sim.tier_store import ClusterStore, StoreWorkers
from tests.sim.world import SimHost

TOPIC = "orders"
REPLICAS, KEEPERS, CONTROLLER = (1, 2, 3), (4, 5), 6
HEAL_SECONDS_MAX = 45.0
LOOK_SECONDS = 0.05
#: The time after which the copy of another process counts as given up (`remote_retention.GIVEN_UP_MS`): an hour is longer than
#: a run.
GIVEN_UP_MS = 4_000
EARLIEST = -2
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "ottla.tier.location": "simulated",
    "ottla.tier.call.timeout.ms": "3000",
    "remote.log.manager.task.interval.ms": "400",
    "log.retention.check.interval.ms": "300",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "1500",
    "replica.fetch.wait.max.ms": "300",
    "replica.fetch.backoff.ms": "200",
}
CONFIGS = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "retention.ms": "-1",
    "internal.segment.bytes": "1200",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "true",
}
#: The settings of the metadata topic, which is created beforehand so that only the keepers have it.
METADATA_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.insync.replicas": "2",
}


class Truth:
    """The batches that logs have had: their bytes by leader epoch and offset."""

    def __init__(self) -> None:
        self.batches: dict[tuple[int, int], bytes] = {}
        self.nodes: Sequence[SimNode] = ()
        #: The checked part of each log: the process, the leader epoch and the end.
        self._looked: dict[int, tuple[int, int, int]] = {}

    def look(self) -> None:
        """Record new batches in the logs. No batch leaves a log for good, or reaches the store, between two of these checks."""
        for node in self.nodes:
            if node.is_up and (partition := partition_of(node)) is not None:
                self._look(node, partition)

    def _look(self, node: SimNode, partition: Partition) -> None:
        log = partition.log
        if log is None or log.failure is not None or log.closed:
            return
        life, epoch, end = self._looked.get(node.number, (-1, -1, 0))
        is_same = (life, epoch) == (node.life, partition.leader_epoch) and end <= log.log_end_offset
        self._looked[node.number] = node.life, partition.leader_epoch, log.log_end_offset
        for batch in log.batches(max(end, log.local_start_offset) if is_same else log.local_start_offset):
            key, data = (batch.partition_leader_epoch, batch.base_offset), bytes(batch.buffer)
            if self.batches.setdefault(key, data) != data:
                raise Violation("7", f"{node} has another batch at (epoch, offset) {key} than a log before")

    def check(self, batch: Any, where: str) -> None:
        key = batch.partition_leader_epoch, batch.base_offset
        if key not in self.batches:
            self.look()
        if self.batches.get(key) != bytes(batch.buffer):
            raise Violation("8", f"{where} was given a batch at (epoch, offset) {key} that no log has had")


def partition_of(node: SimNode) -> Partition | None:
    return next((each for each in node.partitions() if each.topic == TOPIC), None)


class Writer(Client):
    """Writes with acks=1, and accepts any response."""

    async def run(self) -> None:
        count = 0
        while not self.stopping:
            await self.pause(0.08)
            leader = await self.leader_of(TOPIC, 0)
            if leader is None or TOPIC not in self.topic_ids:
                await asyncio.sleep(BACKOFF_SECONDS)
                continue
            count += 1
            value = b"%06d" % count + b"." * self.rng.choice((10, 100, 250))
            data = build_batch([(None, value, self.world.clock.wall_ms())] * self.rng.choice((1, 1, 3)))
            rows = [PartitionProduceData(index=0, records=data)]
            topic = TopicProduceData(name=TOPIC, topic_id=self.topic_ids[TOPIC], partition_data=rows)
            try:
                response = await self.ask_node(
                    leader, ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[topic]), 1_500
                )
            except Unreachable:
                await self.refresh([TOPIC])
                continue
            if response.responses[0].partition_responses[0].error_code:
                await self.refresh([TOPIC])


class Reader(Client):
    """Reads from the log start on, and again from there if the log has become shorter."""

    truth: Truth
    position = -1
    pause_seconds = 0.2
    #: The leader epoch of each offset that was read since the last start.
    epochs: dict[int, int]
    _starts = 0

    async def run(self) -> None:
        self.begin_again()
        while not self.stopping:
            await self.pause(self.pause_seconds)
            try:
                await self._poll()
            except Unreachable:
                await self.refresh([TOPIC])

    def begin_again(self) -> None:
        self._starts += 1
        self.epochs, self.position = {}, -1

    async def _poll(self) -> None:
        leader, starts = await self.leader_of(TOPIC, 0), self._starts
        if leader is None or TOPIC not in self.topic_ids:
            return
        if self.position < 0:
            if (start := await self._start(leader)) is None:
                await self.refresh([TOPIC])
            elif starts == self._starts:
                self.position = start
            return
        row = FetchPartition(partition=0, fetch_offset=self.position, partition_max_bytes=4096)
        topics = [FetchTopic(topic=TOPIC, topic_id=self.topic_ids[TOPIC], partitions=[row])]
        response = await self.ask_node(leader, FetchRequest(max_wait_ms=300, min_bytes=1, topics=topics))
        if starts != self._starts:
            return
        answer = response.responses[0].partitions[0]
        match ErrorCode(answer.error_code):
            case ErrorCode.NONE:
                self._take(answer)
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self.begin_again()
            case _:
                await self.refresh([TOPIC])

    async def _start(self, leader: int) -> int | None:
        row = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=TOPIC, partitions=[row])])
        answer = (await self.ask_node(leader, request)).topics[0].partitions[0]
        return None if answer.error_code else int(answer.offset)

    def _take(self, answer: Any) -> None:
        for batch in iter_batches(answer.records or b""):
            self.truth.check(batch, self.name)
            if not batch.base_offset <= self.position <= batch.last_offset:
                raise Violation("45", f"{self.name} at {self.position} was given {batch}")
            for offset in range(batch.base_offset, batch.next_offset):
                self.epochs[offset] = batch.partition_leader_epoch
            self.position = batch.next_offset


class LineageHistory:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed, self.rng = seed, random.Random(f"lineages {seed}")
        self.store = ClusterStore(random.Random(f"store of lineages {seed}"))
        self._runs = False
        self.history = History(self._time)
        self.truth = Truth()
        self.elections = self.deletions = 0
        #: Segments in the store that have no record in any log.
        self.lost_segments = 0

    def _time(self) -> float:
        return asyncio.get_running_loop().time() if self._runs else 0.0

    def _workers(self, host: SimHost, name: str) -> StoreWorkers | None:
        return StoreWorkers(self.store, host) if name.startswith("tier") else None

    def play(self) -> None:
        before = remote_retention.GIVEN_UP_MS
        vars(remote_retention)["GIVEN_UP_MS"] = GIVEN_UP_MS
        try:
            run(self._main())
        finally:
            vars(remote_retention)["GIVEN_UP_MS"] = before

    async def _main(self) -> None:
        self._runs = True
        roles = dict.fromkeys((*REPLICAS, *KEEPERS), "broker") | {CONTROLLER: "controller"}
        settings = SETTINGS | {"follower.fetch.last.tiered.offset.enable": self.rng.choice(("true", "false"))}
        self.cluster = cluster = SimCluster(random.Random(self.rng.getrandbits(64)), roles, settings)
        self.truth.nodes = [cluster.by_number[number] for number in REPLICAS]
        for node in cluster.nodes:
            node.host.apart = partial(self._workers, node.host)
        with self.store.opened(lambda number: cluster.by_number[number].host):
            cluster.start()
            if not await cluster.all_serve(20):
                raise Violation("54", "the cluster does not start")
            self.admin = self._client(Admin, "admin")
            await self._create(REMOTE_LOG_METADATA_TOPIC, KEEPERS, METADATA_CONFIGS, 2)
            await self._create(TOPIC, REPLICAS, CONFIGS, 1)
            self.reader = self._client(Reader, "reader")
            self.reader.truth = self.truth
            writer = self._client(Writer, "writer")
            clients = [writer, self.reader]
            for client in clients:
                client.start()
            watcher = asyncio.ensure_future(self._watch(clients))
            body = asyncio.ensure_future(self._body(writer))
            await asyncio.wait([watcher, body], return_when=asyncio.FIRST_COMPLETED)
            for task in (watcher, body):
                if task.done():
                    task.result()
            watcher.cancel()
            if cluster.unexpected.seen:
                raise Violation("54", f"{cluster.unexpected.seen[0]}")

    def _client(self, kind: type[Any], name: str) -> Any:
        bootstrap = [(f"n{number}", BROKER_PORT) for number in KEEPERS]
        return kind(name, self.cluster.hub, random.Random(self.rng.getrandbits(64)), bootstrap, self.history)

    async def _create(self, name: str, replicas: Sequence[int], configs: dict[str, str], partitions: int) -> None:
        assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas)) for index in range(partitions)
        ]
        values = [CreatableTopicConfig(name=key, value=value) for key, value in configs.items()]
        topic = CreatableTopic(
            name=name, num_partitions=-1, replication_factor=-1, assignments=assignments, configs=values
        )
        response = await self.admin.ask_any(CreateTopicsRequest(topics=[topic], timeout_ms=5_000), 6_000)
        if code := response.topics[0].error_code:
            raise Violation("54", f"{name} is not created: {ErrorCode(code).name} {response.topics[0].error_message}")

    async def _watch(self, clients: Sequence[Client]) -> None:
        while True:
            self.truth.look()
            for client in clients:
                for failure in client.failed:
                    raise failure
            await asyncio.sleep(LOOK_SECONDS)

    def _registration(self) -> Any:
        image = self.cluster.decided_image
        topic = None if image is None else image.topics.by_name(TOPIC)
        return None if topic is None else topic.partitions[0]

    async def _until(self, what: str, is_so: Any) -> None:
        end = asyncio.get_running_loop().time() + HEAL_SECONDS_MAX
        while not is_so():
            if asyncio.get_running_loop().time() > end:
                raise Violation("54", f"{what}: not within {HEAL_SECONDS_MAX:.0f} s: {self._describe()}")
            await asyncio.sleep(0.1)

    def _describe(self) -> str:
        rows = [f"{self._registration()}, reader at {self.reader.position}"]
        for number in REPLICAS:
            partition = partition_of(self.cluster.by_number[number])
            if partition is not None and partition.log is not None:
                log = partition.log
                rows.append(
                    f"{number}: [{log.log_start_offset} {log.local_start_offset} {log.log_end_offset}) {log.epochs.entries}"
                    f" stored to {log.remote_end}"
                )
        return "; ".join(rows)

    # -- What happens ------------------------------------------------------------------------------------------------

    async def _body(self, writer: Writer) -> None:
        await self._until("all are in sync", self._all_in_sync)
        await asyncio.sleep(self.rng.choice((0, 2, 4)))  # immediately, a replica without a record is elected
        for _ in range(self.rng.choice((1, 2, 2, 3))):
            await self._lose_a_lineage()
            if self.rng.random() < 0.5:
                await self._check_whole()
        writer.stopping = True
        await self._until("the writer ends", lambda: writer.is_done)
        await self._check_whole()
        await self._delete_all()

    def _all_in_sync(self) -> bool:
        found = self._registration()
        return found is not None and found.leader in REPLICAS and set(found.isr) == set(REPLICAS)

    def _cut(self, first: int, *others: int) -> list[tuple[str, str]]:
        links = [(f"n{first}", f"n{other}") for other in others]
        links += [(target, source) for source, target in links]
        for link in links:
            self.cluster.hub.cut(*link)
        return links

    async def _lose_a_lineage(self) -> None:
        rng, by_number = self.rng, self.cluster.by_number
        await self._until("there is a leader", lambda: (found := self._registration()) and found.leader in REPLICAS)
        leader = self._registration().leader
        behind, third = rng.sample([number for number in REPLICAS if number != leader], 2)
        links = self._cut(behind, leader, third)
        await self._until("it is behind", lambda: behind not in self._registration().isr)
        await self._change_store()
        await asyncio.sleep(rng.uniform(0.5, 5))
        if rng.random() < 0.5:
            await self._delete_some(leader)
        killed = [third]
        await by_number[third].crash(power=False)
        if rng.random() < 0.5:
            await asyncio.sleep(rng.uniform(0, 3))
        if rng.random() < 0.5:
            killed.append(leader)
            await by_number[leader].crash(power=False)
        else:
            links += self._cut(leader, CONTROLLER)
        self.history.note(f"{behind} is behind {leader}; killed {killed}")
        await self._until("it is elected", lambda: self._registration().leader == behind)
        self.elections += 1
        await asyncio.sleep(rng.uniform(0.5, 5))
        rng.shuffle(links)
        for link in links:
            self.cluster.hub.mend(*link)
        for number in killed:
            by_number[number].boot()
            await asyncio.sleep(rng.uniform(0, 3))
        self.store.heal()
        await asyncio.sleep(rng.uniform(0, 6))

    async def _delete_some(self, leader: int) -> None:
        """Delete the first records, beside a replica that does not learn of it: it waits in vain for that one."""
        partition = partition_of(self.cluster.by_number[leader])
        if partition is None or partition.log is None:
            return
        start, end = partition.log.log_start_offset, partition.log.high_watermark
        with suppress(Unreachable):  # it has the request
            await self._delete_to(leader, self.rng.randint(start, max(start, end)), 500)
        self.deletions += 1
        await asyncio.sleep(self.rng.uniform(0, 4))

    async def _delete_to(self, leader: int, offset: int, timeout_ms: int) -> ErrorCode:
        partitions = [DeleteRecordsPartition(partition_index=0, offset=offset)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=partitions)], timeout_ms=timeout_ms
        )
        await self.admin.refresh([TOPIC])
        answer = await self.admin.ask_node(leader, request, timeout_ms + 1_000)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    async def _change_store(self) -> None:
        match self.rng.choice(("good", "good", "slow", "fails")):
            case "slow":
                self.store.is_slow = True
            case "fails":
                self.store.failing = self.rng.choice((0.05, 0.3))

    async def _check_whole(self) -> None:
        """Check that the records of the last leader's lineage are read, from the log start to the end."""
        self.store.heal()
        await self._until("all are in sync", self._all_in_sync)
        self.reader.begin_again()
        partition = partition_of(self.cluster.by_number[self._registration().leader])
        assert partition is not None and partition.log is not None
        log, start, end = partition.log, partition.log.log_start_offset, partition.log.log_end_offset
        self.reader.pause_seconds = 0.01  # a segment has some records, and each is a Fetch
        await self._until("the leader's log is read", lambda: self.reader.position >= end)
        lineage = lineage_of(log).epochs
        for offset in range(start, end):
            epoch = max((each for each, first in lineage if first <= offset), default=-1)
            if self.reader.epochs.get(offset) != epoch:
                raise Violation(
                    "8", f"offset {offset} was read of epoch {self.reader.epochs.get(offset)}: {self._describe()}"
                )
        self.lost_segments += sum(
            agreement(each.epochs, lineage, each.start, each.end + 1) <= each.start for each in self._remote_segments()
        )

    def _remote_segments(self) -> list[Any]:
        leader = self.cluster.by_number[self._registration().leader]
        partition = partition_of(leader)
        assert partition is not None and leader.server is not None and leader.server.broker is not None
        assert leader.server.broker.tiers is not None
        segments = leader.server.broker.tiers.driver.segments_of(partition)
        return [] if segments is None else list(segments.by_id.values())

    async def _delete_all(self) -> None:
        error = await self._delete_to(self._registration().leader, -1, 30_000)
        if error:
            raise Violation("54", f"DeleteRecords: {error.name}")
        await self._until(
            "no segment of any lineage is left in the store", lambda: not set(self.store.objects) - {OWNER}
        )


def play(seed: int) -> LineageHistory:
    """Raises TiersBroken."""
    history = LineageHistory(seed)
    gc.collect()
    gc.disable()  # as for other clusters (`__main__`)
    try:
        history.play()
    except Violation as violation:
        raise TiersBroken("\n".join([*list(history.history.trace)[-15:], str(violation)])) from violation
    finally:
        gc.enable()
    return history
