"""The ground on which the protocol of tables runs in histories: a store and tables in memory whose calls take turns and meet faults, and a log.

Each process, a leader or a committer, is a thread that runs only while it has its turn: from one call to the next. It can be killed
before a call, or between its effect and its answer, or be left behind and go on much later.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from ottla.server.config.tables.topic_tables import UNPARTITIONED
from ottla.tables import offers
from ottla.tables.maintenance import MaintenancePolicy
from ottla.tables.partitioning import FilePart, listed
from ottla.tables.store import StoredObject, StoreFailure
from ottla.tables.table import CommitConflict, CommitUnknown, TableCommit, TableState
from ottla.tables.translating import CommittedSpan, EpochStart, Translated, TranslatedPart
from tests.sim.sink_model import SparkProcess as TurnProcess

T = TypeVar("T")
#: One record out of so many does not fit the columns.
REJECTED_OF = 5
FILE_ROWS_MAX = 7
#: The number of files of a table that are merged into one, and the number of its versions that are kept.
SMALL_FILES, VERSIONS = 3, 2


class Faulty:
    """Calls that take turns. Some of them fail, half of those after they took effect."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.failing = 0.0

    def call(self, effect: Callable[[], T], fault: type[Exception]) -> T:
        """Run the effect in a turn of the process that calls. Raises `fault` before it, or after it."""
        process = TurnProcess.current
        if process is not None:
            process.stop()
        fails = process is not None and self.rng.random() < self.failing
        if fails and self.rng.random() < 0.5:
            raise fault("failed before its effect")
        answer = effect()
        if process is not None:
            process.stop()
        if fails:
            raise fault("the answer was lost")
        return answer


class SimStore:
    """A store in memory."""

    url = "sim://tables"

    def __init__(self, faulty: Faulty) -> None:
        self._faulty = faulty
        self.objects: dict[str, bytes] = {}

    def put(self, name: str, data: bytes | memoryview) -> None:
        self._faulty.call(lambda: self.objects.__setitem__(name, bytes(data)), StoreFailure)

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        self.put(name, b"".join(parts))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        def effect() -> bool:
            return self.objects.setdefault(name, data) is data

        return bool(self._faulty.call(effect, StoreFailure))

    def get(self, name: str) -> bytes | None:
        return self._faulty.call(lambda: self.objects.get(name), StoreFailure)

    def size(self, name: str) -> int | None:
        return self._faulty.call(lambda: len(self.objects[name]) if name in self.objects else None, StoreFailure)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        return self.objects[name][start : start + length]

    def copy(self, source: str, target: str) -> None:
        self._faulty.call(lambda: self.objects.__setitem__(target, self.objects[source]), StoreFailure)

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        def effect() -> list[StoredObject]:
            names = sorted(name for name in self.objects if name.startswith(folder + "/") and name > after)
            return [StoredObject(name, len(self.objects[name]), 0) for name in names]

        yield from self._faulty.call(effect, StoreFailure)

    def sweep(self, before_ms: int) -> Iterator[str]:
        return iter(())

    def delete(self, name: str) -> None:
        self._faulty.call(lambda: self.objects.pop(name, None), StoreFailure)


class SimVersion(NamedTuple):
    """A version of a table as it was loaded, and the files of the versions that readers could open at that time."""

    number: int
    named: frozenset[str]


class SimTable:
    """A table in memory: a commit is conditional on the loaded version, as with snapshots and Delta's log."""

    def __init__(self, faulty: Faulty, store: SimStore, name: str) -> None:
        self._faulty = faulty
        self._store = store
        self._merged = f"merged/{name}"
        self.sequence = 0
        #: The files of the versions that readers may open. The last version is the table.
        self.versions: dict[int, list[str]] = {}
        #: Whether each of its files has one day: this is true for all files of a table, or for none.
        self.kinds: set[bool] = set()

    @property
    def version(self) -> SimVersion | None:
        return SimVersion(max(self.versions), frozenset(self.named)) if self.versions else None

    @property
    def files(self) -> list[str]:
        return self.versions[max(self.versions)] if self.versions else []

    @property
    def named(self) -> set[str]:
        return {name for files in self.versions.values() for name in files}

    def load(self) -> TableState | None:
        def effect() -> TableState | None:
            return None if self.version is None else TableState(self.version, self.sequence)

        return self._faulty.call(effect, CommitUnknown)

    def create(self, sequence: int) -> None:
        def effect() -> None:
            if not self.versions:
                self.versions, self.sequence = {1: []}, sequence

        self._faulty.call(effect, CommitUnknown)

    def commit(self, state: TableState, commit: TableCommit) -> None:
        def effect() -> None:
            self._make(state, self.files + [file.name for file in commit.files])
            self.sequence = commit.sequence
            self.kinds |= {file.part is not None for file in commit.files}

        self._faulty.call(effect, CommitUnknown)

    def compact(self) -> None:
        """Another writer's commit, which keeps the rows and the number."""
        if self.version is not None:
            self._make(TableState(self.version, self.sequence), self.files)

    def merge(self, state: TableState, policy: MaintenancePolicy) -> int:
        gone = self.versions.get(state.version.number, [])[:SMALL_FILES]
        if len(gone) < SMALL_FILES:
            return 0
        contents = [self._store.get(name) for name in gone]
        numbers = [number for content in contents if content is not None for number in json.loads(content)]
        name = f"{self._merged}/{state.version.number}-{self._faulty.rng.getrandbits(64):016x}"
        self._store.put(name, json.dumps(numbers).encode())

        def effect() -> None:
            self._make(state, [name] + [each for each in self.files if each not in gone])

        self._faulty.call(effect, CommitUnknown)
        return len(gone)

    def expire(self, state: TableState, policy: MaintenancePolicy, now_ms: int) -> int:
        def effect() -> None:
            self.versions = dict(sorted(self.versions.items())[-VERSIONS:])

        self._faulty.call(effect, CommitUnknown)
        return 0

    def touch(self, state: TableState) -> None:
        self._faulty.call(lambda: self._make(state, self.files), CommitUnknown)

    def own_files(self) -> Iterator[StoredObject]:
        yield from self._store.list(self._merged)

    def unnamed(self, state: TableState, names: set[str], policy: MaintenancePolicy) -> set[str]:
        return names - state.version.named

    def _make(self, state: TableState, files: list[str]) -> None:
        if self.version is None or state.version.number != self.version.number:
            raise CommitConflict("another version")
        self.versions[self.version.number + 1] = files


@dataclass
class SimLog:
    """A partition's log in the view of its leader in one epoch. A record is a number, which no other record ever has."""

    partition: int
    epoch: int = 0
    start: int = 0
    records: dict[int, int] = field(default_factory=dict)
    epochs: list[EpochStart] = field(default_factory=lambda: [EpochStart(0, 0)])
    #: The records that the leader knows to be committed. A new leader learns it late.
    high_watermark: int = 0

    @property
    def end(self) -> int:
        return max(self.records, default=self.start - 1) + 1

    def span(self) -> CommittedSpan:
        return CommittedSpan(self.partition, self.epoch, self.start, self.high_watermark, tuple(self.epochs))

    def copy(self) -> SimLog:
        return replace(self, records={**self.records}, epochs=[*self.epochs])

    def is_start_of(self, other: SimLog) -> bool:
        return all(
            other.records.get(offset) == number for offset, number in self.records.items() if offset >= other.start
        )

    def next_leader(self, kept: int, high_watermark: int, epoch: int) -> SimLog:
        """Return the log of the next leader, which has the records below `kept`."""
        records = {offset: number for offset, number in self.records.items() if offset < kept}
        end = max(records, default=self.start - 1) + 1
        epochs = [each for each in self.epochs if each.start < end] + [EpochStart(epoch, end)]
        return SimLog(self.partition, epoch, self.start, records, epochs, min(high_watermark, end), self.parted)

    #: The partitioning of the tables in the view of its leader.
    parted: str = UNPARTITIONED

    def translate(self, first: int, end: int) -> Translated:
        """The source of a translator: a file is a list of numbers.

        A partitioned table has one file for odd and one for even numbers.
        """
        end = min(end, first + 1 + (first * 5 + self.epoch) % FILE_ROWS_MAX)  # of sizes that no two leaders share
        numbers = [self.records[offset] for offset in range(first, end) if offset in self.records]
        rows = [number for number in numbers if number % REJECTED_OF]
        rejected = [number for number in numbers if not number % REJECTED_OF]
        data, parts = json.dumps(rows).encode(), list[TranslatedPart]()
        if self.parted != UNPARTITIONED:
            by_part = {value: [number for number in rows if number % 2 == value] for value in (0, 1)}
            parts = [TranslatedPart(value, json.dumps(some).encode()) for value, some in by_part.items() if some]
            data = listed([FilePart(part.value, len(by_part[part.value]), len(part.data)) for part in parts])
        suffix = offers.SUFFIX_OF[self.parted]
        return Translated(end, len(rows), data, len(rejected), json.dumps(rejected).encode(), suffix, tuple(parts))


def numbers_of(store: SimStore, table: SimTable) -> list[int]:
    """Return the records of a table's files."""
    return [number for name in table.files for number in json.loads(store.objects[name])]
