"""fetch.min.bytes: no fetch waits while its minimum can be read, however its limits lie to the ends of the batches."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.fetch import handler
from ottla.broker.fetch.reader import SessionReader
from ottla.broker.fetch.session_cache import FetchSessionCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.wakeups import Wakeups
from ottla.protocol.messages.fetch import FetchPartition as Asked
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse, FetchTopic, ReplicaState
from ottla.protocol.records.control import end_txn_batch
from ottla.server.clock import TimerWheel
from ottla.server.network.context import Reply
from ottla.storage.directories.recovery import open_log
from ottla.storage.files import Mappings, OsFiles
from ottla.storage.log.log import Log, Origin
from ottla.storage.log.partition_dir import LogSpec
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.made_partition import made_partition
from tests.broker.replication.test_partition import NOW_MS, TOPIC_ID, Flushes
from tests.effort import examples
from tests.histories import Mutant
from tests.manual_clock import ManualClock

CONSUMER, FOLLOWER = -1, 2
VERSION = 17
PRODUCER_ID = 7
WAIT_MS = 500
SEEDS, STEPS = examples(60), 40


class Broker:
    """The dependencies of a fetch, with partitions that one follower replicates."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.clock = ManualClock()
        self.wheel = TimerWheel(self.clock)
        self.replicas = self.metadata = self.authorizer = self.quotas = self.world = self
        self.enabled = self.active = False
        self.tiers = None
        self.wakeups = Wakeups(self.clock)
        self.fetch_max_bytes = 1 << 20
        self.fetch_sessions = FetchSessionCache(10, rng)
        self.by_name: dict[str, dict[int, Partition]] = {}
        #: Small segments end a read as well.
        config = LogConfig(segment_bytes=rng.choice((2_000, 1 << 20)))
        self.partitions = [
            made_partition(1, "t", index, TOPIC_ID, self.wakeups, Flushes(), 30_000)
            for index in range(rng.randint(1, 3))
        ]
        self.by_id = {TOPIC_ID: {each.index: each for each in self.partitions}}
        self.logs: list[Log] = []
        for each in self.partitions:
            spec = LogSpec(OsFiles(), Mappings(), str(folder / f"t-{each.index}"), "t", each.index, TOPIC_ID, config)
            self.logs.append(open_log(spec, clean=True))
            each.become_leader(self.logs[-1], 1, 1, (1, FOLLOWER), (1, FOLLOWER), NOW_MS)

    def topic_name(self, topic_id: bytes) -> str:
        return "t"

    def change(self, rng: random.Random) -> None:
        """Append a batch, end a transaction, or let a follower fetch."""
        partition = rng.choice(self.partitions)
        log = partition.leader_log
        assert log is not None
        match rng.randrange(4):
            case 0 | 1:
                partition.append(batch([rng.randbytes(rng.choice((1, 50, 300, 1_500)))]), 1, NOW_MS)
            case 2 if log.producers.first_unstable_offset() >= 0:
                marker = end_txn_batch(
                    committed=True, producer_id=PRODUCER_ID, producer_epoch=0, coordinator_epoch=0, timestamp=NOW_MS
                )
                partition.append(marker, 1, NOW_MS, Origin.COORDINATOR)
            case 2:
                state = log.producers.states.get(PRODUCER_ID)
                sequence = 0 if state is None else state.last_sequence + 1
                log.producers.requires_verification = False
                part = batch(
                    [b"part"], producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence, transactional=True
                )
                partition.append(part, 1, NOW_MS)
            case _:
                offset = rng.randint(log.high_watermark, log.log_end_offset)
                partition.record_follower_fetch(FOLLOWER, offset, 0, NOW_MS, 1)
        self.clock.advance(0)  # run the wake-ups


@contextmanager
def serving(folder: Path, rng: random.Random) -> Iterator[Any]:
    broker = Broker(folder, rng)
    try:
        yield broker
    finally:
        for log in broker.logs:
            log.close()


def readable(log: Log, offset: int, request: FetchRequest) -> tuple[list[int], bool]:
    """Return the sizes of the batches that the reader may get, and whether they are in one segment."""
    end = log.last_stable_offset if request.isolation_level else log.high_watermark
    if request.replica_state.replica_id >= 0:
        end = log.log_end_offset
    sizes = [each.size for each in log.batches(offset, end) if each.last_offset < end]
    return sizes, log.segments.floor_index(offset) == log.segments.floor_index(max(offset, end - 1))


def assert_waits_only_for_its_minimum(broker: Broker, request: FetchRequest, is_answered: bool) -> None:
    """Assert it by Kafka's rule: each partition counts with the bytes that can be read, up to its limit; a first batch that is
    larger is sent as a whole.
    """
    minimum = min(request.min_bytes, request.max_bytes)
    least = most = 0
    in_one = True
    for row in request.topics[0].partitions:
        sizes, is_one = readable(broker.logs[row.partition], row.fetch_offset, request)
        least += min(sum(sizes), row.partition_max_bytes)
        most += max(min(sum(sizes), row.partition_max_bytes), sizes[0] if sizes else 0)
        in_one = in_one and is_one
    assert is_answered or least < minimum, f"{least} bytes can be read, and a minimum of {minimum} waits: {request}"
    assert not is_answered or most >= minimum or not in_one, f"{most} bytes are too few for {minimum}: {request}"


def some_request(rng: random.Random, broker: Broker) -> FetchRequest:
    limits = (0, 100, 400, 1_000, 3_000, 1 << 20)
    max_bytes = rng.choice(limits)
    limit = rng.choice(limits)
    rows = [
        Asked(
            partition=each.index,
            fetch_offset=rng.randint(0, broker.logs[each.index].high_watermark),
            partition_max_bytes=rng.choice((limit, rng.choice(limits))),
        )
        for each in broker.partitions
    ]
    minimum = rng.choice((1, limit, limit * len(rows), limit - 1, max_bytes, max_bytes + 1, rng.randint(1, 4_000)))
    return FetchRequest(
        replica_state=ReplicaState(replica_id=rng.choice((CONSUMER, CONSUMER, FOLLOWER)), replica_epoch=1),
        max_wait_ms=WAIT_MS,
        min_bytes=max(1, minimum),
        max_bytes=max_bytes,
        isolation_level=rng.randrange(2),
        session_epoch=rng.choice((0, -1)),
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=rows)],
    )


def run_history(folder: Path, seed: int) -> int:
    """Return the number of fetches that waited and were answered before their time was over."""
    rng = random.Random(seed)
    context: Any = type("Context", (), {"api_version": VERSION})()
    woken = 0
    with serving(folder, rng) as broker:
        for _ in range(STEPS):
            broker.change(rng)
            request = some_request(rng, broker)
            answer = handler.handle(broker, request, context)
            assert_waits_only_for_its_minimum(broker, request, isinstance(answer, FetchResponse))
            if not isinstance(answer, Reply):
                continue
            for _ in range(rng.randrange(12)):
                broker.change(rng)
                assert_waits_only_for_its_minimum(broker, request, answer.done)
                if answer.done:
                    woken += 1
                    break
            broker.clock.advance(2 * WAIT_MS)
            assert answer.done
    return woken


def test_no_fetch_waits_while_its_minimum_can_be_read(tmp_path: Path) -> None:
    assert sum(run_history(tmp_path / str(seed), seed) for seed in range(SEEDS)) > SEEDS // 2


_read = SessionReader.read


def count_what_is_sent(self: SessionReader, rows: Any) -> bool:
    """A mutant that counts only complete batches."""
    is_enough = _read(self, rows)
    sizes = {row[0]: len(row[3] or b"") for row in rows}
    if self.ready_bytes is not None:
        self.ready_bytes.update(sizes)
    return is_enough and (sum(sizes.values()) >= self.min_bytes or any(row[2] is None for row in rows))


def forget_the_others(self: handler.DelayedFetch, ready_bytes: dict[Any, int]) -> bool:
    """A mutant that looks only at the partitions that have changed."""
    ready_bytes.clear()
    return _has_enough(self, ready_bytes)


_has_enough = handler.DelayedFetch._has_enough
MUTANTS = (
    Mutant("a limit that is met in whole batches counts what is sent", ((SessionReader, "read", count_what_is_sent),)),
    Mutant(
        "a delayed fetch counts what has changed alone", ((handler.DelayedFetch, "_has_enough", forget_the_others),)
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.text)
def test_the_mutant_is_noticed(tmp_path: Path, mutant: Mutant) -> None:
    assert any(mutant.is_noticed(lambda seed=seed: run_history(tmp_path / str(seed), seed)) for seed in range(60))
