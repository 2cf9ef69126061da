"""A driver of remote storage with one led partition: its log is real, its store is in memory, and the metadata topic applies each record at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from ottla.broker.tiers.chunk_files import ChunkFiles
from ottla.broker.tiers.local_layout import LocalLayout
from ottla.broker.tiers.objects import SegmentLayout
from ottla.broker.tiers.partition_tier import TierCounts
from ottla.broker.tiers.remote_chunks import RemoteChunks
from ottla.broker.tiers.remote_segments import RemoteSegments, TieredPartition
from ottla.broker.tiers.tier_driver import TierDriver
from ottla.broker.tiers.tier_quota import COPIES, FETCHES
from ottla.broker.tiers.tier_reads import TierReads
from ottla.broker.tiers.tier_report import tier_metrics, tier_states
from ottla.protocol.internal_topics.remote_log_records import (
    RemoteLogRecord,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from ottla.server.config.broker import BROKER_CONFIGS
from ottla.storage.files import OsFiles
from ottla.storage.log_config import LogConfig
from ottla.tables.store import StoredObject
from tests.manual_clock import ManualClock
from tests.storage.logs_for_tests import NOW_MS, SMALL, TOPIC_ID, filled

T = TypeVar("T")
TOPIC = "events"
#: The time between the writing of a log and the broker of these tests.
AGE_MS = 90_000


class SameThread:
    """Workers that run every call at once, on the thread of the test."""

    def apart(self, name: str) -> SameThread:
        return self

    async def run(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    async def on_disk(self, directory: str, priority: object, function: Callable[..., T], *args: object) -> T:
        return function(*args)


class MemoryStore:
    """Objects by their names."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        #: Of all objects.
        self.modified_ms = 0
        self.requests = 0

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.objects[name] = bytes(data)

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        self.put(name, b"".join(parts))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self.objects.setdefault(name, data) is data

    def get(self, name: str) -> bytes | None:
        return self.objects.get(name)

    def size(self, name: str) -> int | None:
        return len(self.objects[name]) if name in self.objects else None

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.requests += 1
        return self.objects[name][start : start + length]

    def delete(self, name: str) -> None:
        self.objects.pop(name, None)

    def list(self, folder: str) -> Iterator[StoredObject]:
        for name in sorted(self.objects):
            if name.startswith(f"{folder}/"):
                yield StoredObject(name, len(self.objects[name]), self.modified_ms)

    def folders(self, folder: str) -> list[str]:
        start = f"{folder}/".lstrip("/")
        below = [name.removeprefix(start) for name in self.objects if name.startswith(start)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def sweep(self, before_ms: int) -> Iterator[str]:
        return iter(())


class FailingStore(MemoryStore):
    """A store that fails while `fault` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.fault: Exception | None = None
        self.during: Callable[[], object] = lambda: None
        self.before_delete: Callable[[], object] = lambda: None

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.during()
        if self.fault is not None:
            raise self.fault
        super().put(name, data)

    def delete(self, name: str) -> None:
        self.before_delete()
        super().delete(name)


def chunks_of(world: Any, configs: Any) -> RemoteChunks:
    """Chunks without a cache on disk."""
    return RemoteChunks(world, configs, ChunkFiles(world, "", 0))


class OneTopic(dict[str, dict[int, Any]]):
    """Replicas by topic. Only topics with remote storage may be looked up."""

    def __iter__(self) -> Any:
        raise AssertionError("all replicas are looked at")


class TierHarness:
    def __init__(
        self,
        directory: Path,
        config: LogConfig = SMALL,
        workers: object = None,
        layout: SegmentLayout | None = None,
        open_store: Callable[[], Any] | None = None,
    ) -> None:
        self.log = filled(directory, config=replace(config, remote_storage_enable=True))
        self.log.flush()
        self.partition = SimpleNamespace(
            topic=TOPIC, topic_id=TOPIC_ID, index=0, log=self.log, leader_log=self.log, leader_epoch=3
        )
        self.place = TieredPartition(TOPIC, TOPIC_ID, 0)
        self.segments: RemoteSegments | None = RemoteSegments()
        self.store = FailingStore()
        self.counts = TierCounts()
        #: The reason why the metadata topic cannot be followed.
        self.fault: Exception | None = None
        #: Called while the driver waits for a barrier in the metadata topic, and how often it did.
        self.during_barrier: Callable[[], object] = lambda: None
        self.barriers = 0
        self._tasks: list[asyncio.Task[None]] = []
        clock = self.clock = ManualClock(NOW_MS)
        clock.now_ms = AGE_MS
        self.world: Any = SimpleNamespace(
            clock=clock,
            session_clock=clock,
            rng=random.Random(1),
            files=OsFiles(),
            workers=workers or SameThread(),
            spawn=self._spawn,
        )
        topic = SimpleNamespace(
            segments=lambda topic_id, index: self.segments,
            publish=self._publish,
            catch_up=self._catch_up,
            follow=self._follow,
            led_places=list,
            on_change=None,
        )
        self.configs: dict[str, object] = {
            "remote.log.manager.copier.thread.pool.size": 2,
            "ottla.tier.call.timeout.ms": 5_000,
            "remote.log.manager.task.interval.ms": 30_000,
            "remote.log.reader.threads": 1,
            "remote.fetch.max.wait.ms": 500,
        } | {
            name: BROKER_CONFIGS[name].default
            for quota in (COPIES, FETCHES)
            for name in (quota.limit, quota.window_num, quota.window_seconds)
        }
        self.driver = TierDriver(
            self.world,
            cast(Any, self.configs),
            cast(Any, SimpleNamespace(node_id=1, cluster_id="c")),
            cast(Any, SimpleNamespace(by_name=OneTopic({TOPIC: {0: self.partition}}))),
            cast(Any, SimpleNamespace(names={TOPIC}, on_change=None)),
            cast(Any, topic),
            open_store or (lambda: self.store),
            layout or LocalLayout(),
            self.counts,
        )

    def reads(self) -> TierReads:
        configs: Any = self.configs
        return TierReads(self.world, configs, self.driver, self.counts, chunks_of(self.world, configs))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _follow(self, keys: object) -> None:
        if self.fault is not None:
            raise self.fault

    async def _publish(self, place: TieredPartition, record: RemoteLogRecord) -> None:
        assert isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord)
        assert self.segments is not None
        self.segments.replay(record)

    async def _catch_up(self, place: TieredPartition) -> None:
        self.barriers += 1
        self.during_barrier()

    async def round(self) -> None:
        await self.driver._round()
        await self.tasks_end()

    async def tasks_end(self) -> None:
        """Wait until all tasks have ended, and all tasks that these started."""
        while self._tasks:
            tasks, self._tasks = self._tasks, []
            await asyncio.gather(*tasks)

    @property
    def state(self) -> dict[str, Any]:
        (found,) = tier_states(self.driver, None, NOW_MS + AGE_MS)
        return found

    def metric(self, name: str, topic: str | None = TOPIC) -> float:
        """Return a sample of a topic, or of all topics."""
        labels = {} if topic is None else {"topic": topic}
        families = tier_metrics(self.driver, self.counts, self.clock)
        (family,) = (each for each in families if each.name == name)
        return next(float(sample.value) for sample in family.samples if sample.labels == labels)
