"""The in-flight records of a share partition: runs of records that are in the same state, from the start offset to the end offset.

The runs follow each other without a gap, so that no record can be skipped: an offset without a record is in flight like any
other until it is archived. A run has as many records as were acquired at once; it is split where a part of it changes, and runs
that have become equal again are merged. All costs are by run, none by record. Settings bound the records in flight
(share.partition.max.record.locks), and so the runs: lists and bisection are the fastest structure at that size.

The states of a record are data, with their transitions (drawn in docs/dev/STATES.md) and what each acknowledgement means; the numbers
are those of the wire and of `__share_group_state`. Nothing here decides: that is share_partition.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import IntEnum


class RecordState(IntEnum):
    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    #: The record was given up, and its group has a dead-letter topic (KIP-1191): the dead letter is not written yet.
    ARCHIVING = 3
    ARCHIVED = 4


class AcknowledgeType(IntEnum):
    #: The offset has no record: compaction removed it, or it is a control record.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    #: The lock of the record begins again (KIP-1222).
    RENEW = 4


TERMINAL = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})

#: The state that an acknowledgement gives. A released record is archived instead once its deliveries are used up.
OUTCOMES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}

TRANSITIONS: dict[RecordState, dict[RecordState, str]] = {
    RecordState.AVAILABLE: {
        RecordState.ACQUIRED: "a member fetches it: the delivery count rises by one, and the acquisition lock begins",
        RecordState.ARCHIVED: "the log does not have the offset any more (compaction)",
    },
    RecordState.ACQUIRED: {
        RecordState.AVAILABLE: "released, or its lock timed out, or its member is gone; the delivery count is below the limit",
        RecordState.ACKNOWLEDGED: "accepted",
        RecordState.ARCHIVING: "rejected, or released after its last delivery, in a group with a dead-letter topic",
        RecordState.ARCHIVED: "rejected; or released after its last delivery; or a gap; or of an aborted transaction",
    },
    RecordState.ACKNOWLEDGED: {},
    RecordState.ARCHIVING: {
        RecordState.ARCHIVED: "its dead letter is committed in the dead-letter topic, or has failed for good",
    },
    RecordState.ARCHIVED: {},
}


def released(delivery_count: int, limit: int) -> RecordState:
    """Return the state of a record that its member releases."""
    return RecordState.AVAILABLE if delivery_count < limit else RecordState.ARCHIVED


NO_MEMBER = ""


class AcquiredBatch:
    """The records that were first acquired together. Their number decides how small the parts of later deliveries become."""

    __slots__ = ("size",)

    def __init__(self, size: int) -> None:
        self.size = size


class Run:
    """Records `first` to `last`, both included. `target`: the state that is being written, and takes effect afterwards."""

    __slots__ = ("batch", "count", "deadline_ms", "first", "is_rejected", "last", "member", "state", "target")

    def __init__(self, first: int, last: int, state: RecordState, count: int, batch: AcquiredBatch) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        self.batch = batch
        self.member = NO_MEMBER
        self.deadline_ms = 0
        self.is_rejected = False
        self.target: RecordState | None = None

    def __repr__(self) -> str:
        target = "" if self.target is None else f"->{self.target.name}"
        return f"{self.first}-{self.last} {self.state.name}{target} x{self.count} {self.member}".rstrip()

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def continues(self, before: Run) -> bool:
        """Return whether the run can be merged with the run before: no later decision depends on the boundary between them."""
        return (
            self.state == before.state
            and self.target is None is before.target
            and (
                self.state in TERMINAL
                or (self.state == RecordState.AVAILABLE and self.count == before.count and self.batch is before.batch)
            )
        )


class InFlightRecords:
    """The runs in the order of their offsets, and how many records of them are available or finished."""

    __slots__ = ("_firsts", "available", "end", "finished", "runs", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        #: The next offset that was never acquired.
        self.end = start
        self.runs: list[Run] = []
        self._firsts: list[int] = []
        #: Records that are AVAILABLE, and those whose last state is reached or being written.
        self.available = 0
        self.finished = 0

    @property
    def size(self) -> int:
        return self.end - self.start

    def first_available(self) -> int | None:
        if not self.available:
            return None
        return next(run.first for run in self.runs if run.state == RecordState.AVAILABLE)

    def overlapping(self, first: int, last: int) -> list[Run]:
        """Return the runs that have a record from `first` to `last`."""
        if not self.runs or first > last:
            return []
        low = max(0, bisect_right(self._firsts, first) - 1)
        high = bisect_right(self._firsts, last)
        found = self.runs[low:high]
        return found[1:] if found and found[0].last < first else found

    def cut(self, first: int, last: int) -> list[Run]:
        """Return the runs that have the records from `first` to `last`, and no others: those at both ends are split."""
        self._split_before(first)
        self._split_before(last + 1)
        return self.overlapping(first, last)

    def _split_before(self, offset: int) -> None:
        if not self.start < offset < self.end:
            return
        index = bisect_right(self._firsts, offset) - 1
        run = self.runs[index]
        if run.first == offset:
            return
        assert run.target is None, f"{run} is split while it is being written"
        rest = Run(offset, run.last, run.state, run.count, run.batch)
        rest.member, rest.deadline_ms = run.member, run.deadline_ms
        run.last = offset - 1
        self.runs.insert(index + 1, rest)
        self._firsts.insert(index + 1, offset)

    # -- Changes -----------------------------------------------------------------------------------------------------

    def append(self, last: int, state: RecordState, count: int) -> Run:
        """Take the records from the end offset to `last` into flight."""
        run = Run(self.end, last, state, count, AcquiredBatch(last - self.end + 1))
        self.runs.append(run)
        self._firsts.append(run.first)
        self.end = last + 1
        self._count(run, 1)
        return run

    def change(self, run: Run, state: RecordState) -> None:
        """Change the state of the run's records. States are changed nowhere else."""
        assert state in TRANSITIONS[run.state], f"{run} cannot become {state.name}"
        self._count(run, -1)
        run.state = state
        run.target = None
        if state != RecordState.ACQUIRED:
            run.member = NO_MEMBER
        self._count(run, 1)

    def aim(self, run: Run, target: RecordState | None) -> None:
        """Note the state that is being written; None: the write has failed."""
        self._count(run, -1)
        run.target = target
        self._count(run, 1)

    def _count(self, run: Run, sign: int) -> None:
        if run.state == RecordState.AVAILABLE:
            self.available += sign * run.size
        elif run.state in TERMINAL or run.target in TERMINAL:
            self.finished += sign * run.size

    def restart(self, offset: int) -> None:
        """Start again: nothing is in flight, and the first record of the share partition is at `offset`."""
        assert not self.runs and offset >= self.start
        self.start = self.end = offset

    def drop_before(self, offset: int) -> None:
        """Move the start offset forward to `offset`. The states of records below it are dropped."""
        while self.runs and self.runs[0].first < offset:
            run = self.runs[0]
            self._count(run, -1)
            run.first = min(offset, run.last + 1)
            self._count(run, 1)
            if run.size:
                self._firsts[0] = run.first
                break
            del self.runs[0], self._firsts[0]
        self.start = max(self.start, offset)
        self.end = max(self.end, self.start)

    def drop_finished(self) -> bool:
        """Move the start offset over all records at the front that have reached their last state; return whether it has moved."""
        index = next((i for i, run in enumerate(self.runs) if run.state not in TERMINAL), len(self.runs))
        if not index:
            return False
        self.start = self.runs[index].first if index < len(self.runs) else self.end
        self.finished -= sum(run.size for run in self.runs[:index])
        del self.runs[:index], self._firsts[:index]
        return True

    def merge(self, runs: Iterable[Run]) -> None:
        """Merge the runs from the first to the last of `runs`, and the neighbours of both, where they are equal."""
        ends = [(run.first, run.last) for run in runs if run.size]
        if not ends or not self.runs:
            return
        low = max(0, bisect_right(self._firsts, min(first for first, _ in ends)) - 2)
        high = bisect_right(self._firsts, max(last for _, last in ends) + 1)
        merged: list[Run] = []
        for run in self.runs[low:high]:
            if merged and run.continues(merged[-1]):
                merged[-1].last = run.last
            else:
                merged.append(run)
        self.runs[low:high] = merged
        self._firsts[low:high] = [run.first for run in merged]
