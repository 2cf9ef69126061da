"""Histories of topics as tables: leaders that translate, committers that decide, and what must hold after all faults.

A leader, a committer or the maintenance is killed at any call, or left behind and goes on at any time (a zombie behind a cut, which still reaches the
store). Elections are clean or unclean, retention runs ahead of the tables, other writers compact the tables, and answers are lost. The cluster
is set back to what it was.

No record is ever in the tables twice, in the one of rows and the one of rejected records together; when the faults end, each record of
the log that retention had not deleted before it was translated is there, and nothing waits. No file that a version of a table names is
ever gone, and after the last sweep none is left that no version names. Nothing is too young to be swept, so that no age hides a mistake.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from ottla.server.config.tables.topic_tables import DAY, UNPARTITIONED
from ottla.tables.committing import Committer, TableFollower, rejected_of, rows_of
from ottla.tables.decisions import DecisionLog
from ottla.tables.maintenance import Maintenance, MaintenancePolicy
from ottla.tables.offers import TablePosition
from ottla.tables.store import StoreFailure
from ottla.tables.table import CommitConflict, CommitUnknown, Owner, TableRefused
from ottla.tables.translating import Translator
from tests.histories import draw
from tests.sim.sink_model import SparkProcess as TurnProcess
from tests.sim.table_model import Faulty, SimLog, SimStore, SimTable, numbers_of

PARTITIONS, TURNS, QUIET_TURNS = 2, 300, 60
#: The number of calls of leaders and committers for each other event: mostly, the tables keep up.
WORK_OF_A_TURN = 8
OWNER = Owner("cluster", "topic-id", "orders")
LOST = (StoreFailure, CommitConflict, CommitUnknown)
AT_ONCE = MaintenancePolicy(age_ms=0)
#: The threads that faults can strike: the leaders, and after them these.
COMMITTER, MAINTENANCE = PARTITIONS, PARTITIONS + 1


class TablesBroken(AssertionError):
    """A record is in the tables twice, or missing."""


class History:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.faulty = Faulty(self.rng)
        self.faulty.failing = self.rng.choice((0.0, 0.02, 0.1))
        self.store = SimStore(self.faulty)
        self.table, self.rejected = (SimTable(self.faulty, self.store, name) for name in ("rows", "rejected"))
        self.logs = [SimLog(partition) for partition in range(PARTITIONS)]
        self.numbers = iter(range(1, 1 << 40))
        #: Records that retention has deleted, or an unclean election has lost: they may be in the tables, but need not be.
        self.gone: set[int] = set()
        #: Records that a leader has known to be committed. No other record may be a row.
        self.committed: set[int] = set()
        self.unclean = self.rng.random() < 0.5
        #: Earlier states of the logs, to which the cluster may be set back, and the highest epoch that each log ever had.
        self.kept: list[SimLog] | None = None
        self.epochs = [0] * PARTITIONS
        #: The leaders, the committer and the maintenance.
        self.processes: list[TurnProcess | None] = [None] * (PARTITIONS + 2)
        self.left_behind: list[TurnProcess] = []
        self.struck: Counter[str] = Counter()
        #: The partitioning of tables in the view of each committer and leader: the setting has just been changed.
        self.settings = self.rng.choice(((UNPARTITIONED,), (DAY,), (UNPARTITIONED, DAY)))
        #: The committer begins this number of turns later than the leaders.
        self.alone = self.rng.choice((0, 5, 20))
        #: For this number of turns only maintenance begins: nothing is written.
        self.rest = 0

    def play(self) -> None:
        for turn in range(TURNS):
            self.event()
            self.is_alone = turn < self.alone
            self.rest = max(0, self.rest - 1)
            for _ in range(WORK_OF_A_TURN):
                self.work()
            if self.rng.random() < 0.02:
                self.check()
        self.faulty.failing = 0.0
        for log in self.logs:
            self.advance(log, log.end)
        while self.left_behind or any(self.processes):
            self.work(begins=False)
        for _ in range(QUIET_TURNS):
            for log in self.logs:
                self.translator(log)()
            self.commit()
        for _ in range(2):
            self.maintain()
        self.check()
        self.check_all_there()
        self.check_nothing_left()

    # -- What happens --------------------------------------------------------------------------------------------------------

    def event(self) -> None:
        log = self.rng.choice(self.logs)
        match draw(
            self.rng,
            {
                "append": 30, "commit": 20, "elect": 2, "lose": 2, "delete": 2, "compact": 2, "kill": 3, "leave": 3,
                "rest": 1, "keep": 2, "restore": 0.5,
            },
        ):  # fmt: skip
            case "rest":
                self.rest = self.rng.randint(5, 15)
            case "keep":
                self.kept = [each.copy() for each in self.logs]
            case "restore" if self.kept is not None:
                for each in self.kept:
                    self.restore(each)
            case "append":
                for _ in range(self.rng.randint(1, 6)):
                    log.records[log.end] = next(self.numbers)
            case "commit":
                self.advance(log, self.rng.randint(log.high_watermark, log.end))
            case "elect":
                self.elect(log, log.high_watermark)
            case "lose" if self.unclean:
                self.elect(log, max(log.start, log.high_watermark - self.rng.randint(0, 12)))
            case "delete" if log.high_watermark > log.start:
                self.delete(log, min(log.high_watermark, log.start + self.rng.randint(1, 15)))
            case "compact":
                self.table.compact()
            case "kill" | "leave" as what:
                self.strike(what)

    def advance(self, log: SimLog, high_watermark: int) -> None:
        log.high_watermark = high_watermark
        self.committed |= {number for offset, number in log.records.items() if offset < high_watermark}

    def elect(self, log: SimLog, kept: int) -> None:
        """The old leader does not know of it, and its log stays as it is."""
        known = self.rng.randint(log.start, min(kept, log.high_watermark)) if kept > log.start else log.start
        self.lead(log.next_leader(kept, known, self.epochs[log.partition] + 1))

    def restore(self, kept: SimLog) -> None:
        """A restore: records written since are lost, and epochs go on from the highest one that ever existed
        (`ottla/local/snapshots/raised_epochs.py`).
        """
        self.struck["restore"] += 1
        self.lead(kept.next_leader(kept.end, kept.high_watermark, self.epoch_after(kept)))

    def epoch_after(self, kept: SimLog) -> int:
        return self.epochs[kept.partition] + 1

    def lead(self, after: SimLog) -> None:
        before = self.logs[after.partition]
        if self.kept is not None and not self.kept[after.partition].is_start_of(after):
            self.kept = (
                # a return to records that an unclean election has lost needs a rebuild: otherwise they would be there twice
                None
            )
        self.gone |= {*before.records.values()} - {*after.records.values()}
        self.logs[after.partition] = after
        self.epochs[after.partition] = max(after.epoch, self.epochs[after.partition])
        old, self.processes[after.partition] = self.processes[after.partition], None
        if old is not None:
            self.left_behind.append(old)

    def delete(self, log: SimLog, start: int) -> None:
        gone = {offset: number for offset, number in log.records.items() if offset < start}
        self.gone |= {*gone.values()}
        for offset in gone:
            del log.records[offset]
        log.start = start
        # Like a truncation of the epoch cache from its start: the newest of the older entries then begins at the log's start.
        older = [each for each in log.epochs if each.start <= start]
        log.epochs = [older[-1]._replace(start=start)] * bool(older) + [
            each for each in log.epochs if each.start > start
        ]

    def strike(self, what: str) -> None:
        place = MAINTENANCE if self.rest else self.rng.randrange(len(self.processes))
        process, self.processes[place] = self.processes[place], None
        if process is None:
            return
        self.struck[what] += 1
        if what == "kill":
            process.kill()
        else:
            self.left_behind.append(process)

    # -- Who works -----------------------------------------------------------------------------------------------------------

    def work(self, *, begins: bool = True) -> None:
        if begins:
            self.begin()
        running = [*filter(None, self.processes)]
        if not running and not self.left_behind:
            return
        if self.left_behind and (not running or self.rng.random() < 0.2):
            running = self.left_behind
        process = self.rng.choice(running)
        process.turn()
        if process.is_over:
            if process.fault is not None:
                raise process.fault
            self.left_behind = [each for each in self.left_behind if each is not process]
            self.processes = [None if each is process else each for each in self.processes]

    def begin(self) -> None:
        if self.rest:
            if self.processes[MAINTENANCE] is None:
                self.processes[MAINTENANCE] = TurnProcess("maintenance", self.maintain)
            return
        for partition in range(PARTITIONS):
            if self.processes[partition] is None:
                self.processes[partition] = TurnProcess(f"leader {partition}", self.translator(self.logs[partition]))
        if self.processes[COMMITTER] is None and not self.is_alone:
            self.processes[COMMITTER] = TurnProcess("committer", self.commit)
        if self.processes[MAINTENANCE] is None and self.rng.random() < 0.1:
            self.processes[MAINTENANCE] = TurnProcess("maintenance", self.maintain)

    def translator(self, log: SimLog) -> Callable[[], None]:
        """A leader's process runs for some intervals, each with the log of that moment."""

        def run() -> None:
            self.open(log)
            translator = Translator(
                self.store, log, log.partition, log.epoch, lambda: f"{self.rng.getrandbits(128):032x}"
            )
            for _ in range(self.rng.randint(1, 4)):
                try:
                    last = DecisionLog(self.store, OWNER).last()
                    if last is not None and last.partition != log.parted:  # the worker then opens the topic again
                        return
                    taken: TablePosition | None = last.positions.get(log.partition) if last is not None else None
                    translator.offer(log.span(), taken)
                except LOST:
                    continue
                except TableRefused as fault:
                    raise TablesBroken(str(fault)) from fault

        return run

    def commit(self) -> None:
        followers = [
            TableFollower(self.table, rows_of, self.store, is_lazy=False),
            TableFollower(self.rejected, rejected_of, self.store, is_lazy=True),
        ]
        try:
            log = DecisionLog(self.store, OWNER)
            Committer(self.store, log, followers, self.rng.choice(self.settings)).run(PARTITIONS)
        except LOST:
            return
        except TableRefused as fault:
            raise TablesBroken(str(fault)) from fault

    def open(self, log: SimLog) -> None:
        """Partition the tables as `open_tables` does: like the last decision, or by the setting before the first decision."""
        try:
            last = DecisionLog(self.store, OWNER).last()
        except LOST:
            return
        log.parted = self.rng.choice(self.settings) if last is None else last.partition

    def maintain(self) -> None:
        log = DecisionLog(self.store, OWNER)
        try:
            maintenance = Maintenance(self.store, log, (self.table, self.rejected), AT_ONCE)
            if self.rng.random() < 0.3:  # a maintenance that finds no files small enough to merge
                maintenance.sweep(0)
            else:
                maintenance.run(0)
        except LOST:
            return
        except TableRefused as fault:
            raise TablesBroken(str(fault)) from fault

    # -- What must hold ------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        if gone := (self.table.named | self.rejected.named) - self.store.objects.keys():
            raise TablesBroken(f"a version names files that are gone: {sorted(gone)[:5]}")
        if len(self.table.kinds) > 1:
            raise TablesBroken("files of one day and of several are in one table")
        counted = Counter(numbers_of(self.store, self.table) + numbers_of(self.store, self.rejected))
        if twice := [number for number, times in counted.items() if times > 1]:
            raise TablesBroken(f"in the tables twice: {twice[:5]}")

    def check_all_there(self) -> None:
        there = {*numbers_of(self.store, self.table), *numbers_of(self.store, self.rejected)}
        for log in self.logs:
            if missing := {*log.records.values()} - there:
                raise TablesBroken(f"partition {log.partition}: missing {sorted(missing)[:5]} of {len(log.records)}")
        if never := there - self.committed:
            raise TablesBroken(f"in the tables, and never committed: {sorted(never)[:5]}")

    def check_nothing_left(self) -> None:
        named = self.table.named | self.rejected.named | {f"_commits/{self.table.sequence:012}.json"}
        if left := self.store.objects.keys() - named:
            raise TablesBroken(f"no version names them: {sorted(left)[:5]} of {len(left)}")


def play(seed: int) -> History:
    history = History(seed)
    history.play()
    return history
