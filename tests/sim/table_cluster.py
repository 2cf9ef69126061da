"""Simulated clusters whose topics are tables, with the faults of nodes, links and disks, and those of the store.

It is the simulation of `simulation.py`, its clients, faults and checks. Brokers drive tables of Parquet by their real code: the driver, and the
object of the process beside each node with its translators, committer and maintenance, which reads the segment files on the simulated disk. A job
that the broker has given up goes on later all the same, as a process does that does not notice; it may then commit beside the next one.

At the end each table is held against what a reader of committed records sees: by partition and offset, value for value, and none twice.
"""

from __future__ import annotations

import asyncio
import io
import random
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq

import ottla.node.node
from ottla.broker.tables import table_driver, table_process
from ottla.broker.tables.table_process import TableProcess
from ottla.broker.tables.table_report import table_states
from ottla.columns.batches import Aborted, BatchFilter
from ottla.columns.segments import _written
from ottla.protocol.records.batch import BatchView
from ottla.server.worker_process import WorkerProcess
from ottla.storage.log_files import ABORTED_ENTRY, aborted_txns
from ottla.tables import opening, segment_source, worker
from ottla.tables.maintenance import IN_STEPS
from ottla.tables.store import StoredObject, StoreFailure
from ottla.tables.worker import TableWorker
from tests.sim import tier_history
from tests.sim.faults import Faults
from tests.sim.history import TopicPartition
from tests.sim.loop import LANE
from tests.sim.plan import Plan, choose
from tests.sim.simulation import Simulation, played
from tests.sim.tier_store import ClusterStore, StoreHandle, StoreWorkers
from tests.sim.world import EPOCH_MS, SimHost, SimProcess

#: Of virtual time.
SECONDS = 60.0
LOCATION = "lake"
NODE = {
    "ottla.table.location": LOCATION,
    "ottla.table.call.timeout.ms": "4000",
    "ottla.table.maintenance.interval.ms": "5000",
}
TOPIC = {"ottla.table.format": "parquet", "ottla.table.commit.interval.ms": "700"}
#: After a failure a broker waits for a minute at most, and one job may be another topic's.
CATCH_UP_SECONDS = 150.0
#: Nothing is too young to be swept, so that no age hides a mistake.
POLICY = IN_STEPS._replace(age_ms=0)


class TablesBroken(AssertionError):
    """An invariant does not hold; the text names it."""


class TableHandle(StoreHandle):
    """The objects below one address of the store, as a process has opened it (`Store`)."""

    def __init__(self, store: ClusterStore, host: SimHost, url: str) -> None:
        super().__init__(store, host)
        self.url = url

    def put(self, name: str, data: bytes | memoryview) -> None:
        super().put(self._of(name), data)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        # Each object is another one of Python's, also of equal bytes, which shows who wrote it.
        return super().put_if_absent(self._of(name), bytes(bytearray(data)))

    def get(self, name: str) -> bytes | None:
        return super().get(self._of(name))

    def size(self, name: str) -> int | None:
        return super().size(self._of(name))

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return super().get_range(self._of(name), start, length)

    def delete(self, name: str) -> None:
        super().delete(self._of(name))

    def copy(self, source: str, target: str) -> None:
        def effect() -> None:
            if (data := self._store.objects.get(self._of(source))) is None:
                raise StoreFailure(f"{source} is missing")
            self._store.objects[self._of(target)] = data

        self._call(effect)

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        def effect() -> list[StoredObject]:
            start = len(self._of(""))
            below = sorted(name[start:] for name in self._store.objects if name.startswith(self._of(f"{folder}/")))
            return [StoredObject(each, len(self._store.objects[self._of(each)]), 0) for each in below if each > after]

        yield from self._call(effect)

    def sweep(self, before_ms: int) -> Iterator[str]:
        return iter(())

    def _of(self, name: str) -> str:
        return f"{self.url}/{name}"


class DiskSegments:
    """The segment files of a partition on a simulated disk, in place of `SegmentFiles`."""

    def __init__(self, host: SimHost, folder: Path) -> None:
        self._disk, self._folder = host.disk, str(folder)
        names = self._disk.list_dir(self._folder) if self._disk.exists(self._folder) else []
        self._bases = sorted(int(name[:20]) for name in names if name.endswith(".log"))

    @property
    def first(self) -> int | None:
        return self._bases[0] if self._bases else None

    def aborted(self, position: int) -> Iterator[Aborted]:
        for base in self._bases:
            data = self._disk.read(f"{self._folder}/{base:020}.txnindex") or b""
            for txn in aborted_txns("", data[: len(data) // ABORTED_ENTRY.size * ABORTED_ENTRY.size]):
                if txn.last_offset >= position:
                    yield txn.producer_id, txn.first_offset

    def batches(self, wanted: BatchFilter) -> Iterator[BatchView]:
        for base in self._bases[max(0, bisect_right(self._bases, wanted.position) - 1) :]:
            if wanted.is_done:
                return
            data = self._disk.read(f"{self._folder}/{base:020}.log")
            if data is None:
                raise FileNotFoundError(base)
            view = memoryview(data)
            yield from wanted.batches(view[: _written(view, 0)])


class TableSimulation(Simulation):
    """One run of a seed."""

    topic_configs = TOPIC
    has_new_groups = False

    def __init__(self, seed: int, seconds: float, *, verbose: bool = False) -> None:
        super().__init__(tier_history.SEED_STEP * seed, seconds, verbose=verbose)
        self.chance = random.Random(f"tables {seed}")
        self.store = ClusterStore(random.Random(f"store {seed}"))

    async def _main(self) -> None:
        loop = asyncio.get_running_loop()

        def process_of(process: WorkerProcess, factory: Callable[[], object]) -> TableProcess:
            return TableProcess(SimProcess(StoreWorkers(self.store, self._host())), factory)

        with ExitStack() as stack:
            for module, name, made in (
                (table_driver, "TableProcess", process_of),
                (table_process, "lacking", lambda extra: None),
                (ottla.node.node, "table_worker", TableWorker),
                (opening, "open_store", lambda url, options: TableHandle(self.store, self._host(), url)),
                (opening, "schema_of", lambda store, files: None),
                (segment_source, "SegmentFiles", lambda folder: DiskSegments(self._host(), folder)),
                (worker, "monotonic", loop.time),
                (worker, "time", lambda: EPOCH_MS / 1000 + loop.time()),
                (worker, "_new_uid", lambda: f"{self.chance.getrandbits(128):032x}"),
                (worker, "IN_STEPS", POLICY),
            ):
                stack.enter_context(patch.object(module, name, made))
            try:
                await super()._main()
            finally:
                self.store.is_over = True

    def _host(self) -> SimHost:
        """Return the host in whose process this runs, on its loop or on a thread of it."""
        name = LANE.get().name
        return next(node.host for node in self.cluster.nodes if node.host.name == name)

    def _choose(self) -> Plan:
        plan = choose(self.rng, self.seed)
        return replace(plan, settings=plan.settings | NODE)

    async def _strike(self, faults: Faults, seconds: float, pause_seconds: float) -> None:
        changing = asyncio.ensure_future(tier_history.change_store(self.store, self.chance, self.history))
        try:
            await super()._strike(faults, seconds, pause_seconds)
        finally:
            changing.cancel()
            self.store.heal()

    async def _quiet(self) -> None:
        seen = self.consumers[-1].seen
        loop = asyncio.get_running_loop()
        end = loop.time() + CATCH_UP_SECONDS
        while not all(map(partial(self._is_log, seen), seen)):
            if loop.time() > end:
                raise TablesBroken(f"not each table has what its log has: {[*self._waits()]}")
            await asyncio.sleep(0.5)
        await super()._quiet()

    def _waits(self) -> Iterator[str]:
        for node in self.cluster.brokers:
            if node.server is not None and node.server.broker is not None:
                clock = node.host.clock
                for state in table_states(node.server.broker.tables, None, clock.wall_ms(), clock.mono_ms()):
                    yield f"{node}: {state['topic']} {state['waits']} {state['partitions']}"

    def _is_log(self, seen: dict[TopicPartition, dict[int, bytes]], of: TopicPartition) -> bool:
        rows: dict[int, bytes] = {}
        for offset, value in self._rows(*of):
            if offset in rows:
                raise TablesBroken(f"{of}: offset {offset} is a row twice")
            if seen[of].get(offset) != value:
                raise TablesBroken(f"{of}: offset {offset} is {value!r} and in the log {seen[of].get(offset)!r}")
            rows[offset] = value
        return rows.keys() == seen[of].keys()

    def _rows(self, topic: str, index: int) -> Iterator[tuple[int, bytes]]:
        folder = f"{LOCATION}/ottla/{topic}/rows/{index:05}-"
        for name, data in self.store.objects.items():
            if name.startswith(folder):
                for row in pq.ParquetFile(io.BytesIO(data)).read().to_pylist():
                    yield row["_kafka"]["offset"], row["value"].rstrip(b".")  # as the consumers of `clients` do


def play(seed: int) -> TableSimulation:
    return played(TableSimulation(seed, SECONDS), TablesBroken)
