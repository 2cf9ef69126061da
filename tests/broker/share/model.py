"""A share partition record by record, slow and obvious, with a log, a persister that can fail, and leaders that are killed.

`Checked` does everything to the real share partition and to the model, and compares each record afterwards. What a fetch
acquires is not predicted: it is checked against the rules, and then taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from ottla.broker.share.fetched import Acquired, Span
from ottla.broker.share.in_flight import RecordState, Run
from ottla.broker.share.share_partition import Acknowledgement, SharePartition, ShareSettings, Update
from ottla.broker.share.share_state import ShareState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = RecordState
DONE = (ACKNOWLEDGED, ARCHIVED)
OUTCOMES = {0: ARCHIVED, 1: ACKNOWLEDGED, 2: AVAILABLE, 3: ARCHIVED}


@dataclass(slots=True)
class Record:
    state: RecordState = AVAILABLE
    count: int = 0
    member: str = ""
    deadline_ms: int = 0
    target: RecordState | None = None

    @property
    def is_held(self) -> bool:
        return self.state == ACQUIRED and self.target is None


@dataclass
class Log:
    """A log of record batches. There are holes of compaction between some batches, and some belong to aborted transactions."""

    batches: list[Span] = field(default_factory=list)
    aborted: list[Span] = field(default_factory=list)
    start: int = 0
    end: int = 0

    def append(self, random: Random) -> None:
        first = self.end + (random.randint(1, 5) if random.random() < 0.1 else 0)
        batch = Span(first, first + random.choice([1, 1, 2, 5, 10, 30]) - 1)
        self.batches.append(batch)
        if random.random() < 0.1:
            self.aborted.append(batch)
        self.end = batch.last + 1

    def read(self, offset: int, count: int) -> list[Span]:
        return [batch for batch in self.batches if batch.last >= offset][:count]

    def offsets(self) -> set[int]:
        """Return the offsets of all records that a member has to get."""
        aborted = set(self.aborted)
        return {
            offset
            for batch in self.batches
            if batch not in aborted
            for offset in range(max(batch.first, self.start), batch.last + 1)
        }


def records_of(runs: Sequence[Run]) -> dict[int, Record]:
    return {
        offset: Record(run.state, run.count, run.member, run.deadline_ms, run.target)
        for run in runs
        for offset in range(run.first, run.last + 1)
    }


class Checked:
    """A share partition and its model."""

    def __init__(self, settings: ShareSettings, log: Log) -> None:
        self.settings = settings
        self.log = log
        self.now_ms = 0
        #: The state that the share coordinator has.
        self.stored: dict[int, tuple[RecordState, int]] = {}
        self.stored_start = 0
        self.delivered: dict[int, int] = {}
        #: Records that were released although the write failed: a leader that is killed then forgets the release.
        self.given_back_unwritten: set[int] = set()
        self.finished: set[int] = set()
        self.load()

    def load(self) -> None:
        """Kill the leader; a new one reads the written state."""
        batches: list[StateBatch] = []
        for offset, (state, count) in sorted(self.stored.items()):
            if offset >= self.stored_start:
                batches.append(StateBatch(offset, offset, state, count))
        state = ShareState(0, self.stored_start, batches)
        self.real = SharePartition.load(self.settings, state, self.stored_start)
        self.writing: list[tuple[Update, int]] = []
        self.burying: list[list[Run]] = []
        self.taken: set[int] = set()
        self.records = {offset: Record() for offset in range(self.stored_start, batches[-1][1] + 1)} if batches else {}
        for batch in batches:
            self.records[batch.first_offset] = Record(RecordState(batch.delivery_state), batch.delivery_count)
        self.start = self.stored_start
        self.end = self.start + len(self.records)
        self.real.move_log_start(self.log.start)
        self.move_start(self.log.start)
        self.compare()

    # -- Steps -------------------------------------------------------------------------------------------------------

    def fetch(
        self, member: str, max_records: int, batch_size: int, batch_count: int, *, strict: bool
    ) -> list[Acquired]:
        offset = self.real.next_fetch_offset
        expected = next((o for o, record in sorted(self.records.items()) if record.state == AVAILABLE), self.end)
        assert offset == expected, "invariant 56: a record that could be delivered was skipped"
        batches = self.log.read(offset, batch_count)
        if not batches:
            return []
        acquired = self.real.acquire(
            member,
            offset,
            batches,
            max_records=max_records,
            batch_size=batch_size,
            now_ms=self.now_ms,
            strict=strict,
            aborted=self.log.aborted,
        )
        self.take_over(member, acquired, offset, batches)
        if strict:
            assert sum(last - first + 1 for first, last, _ in acquired) <= max_records
        self.compare()
        return acquired

    def take_over(self, member: str, acquired: list[Acquired], offset: int, batches: list[Span]) -> None:
        aborted = {o for span in self.log.aborted for o in range(span.first, span.last + 1)}
        holes = set(range(offset, batches[0].first))
        # The share partition begins at the first record that exists.
        if not self.records and self.real.in_flight.end > self.end:
            self.start = self.end = max(self.start, min(batches[0].first, self.real.in_flight.end))
        for o in range(self.end, self.real.in_flight.end):
            self.records[o] = Record()
        self.end = max(self.end, self.real.in_flight.end)
        granted: dict[int, int] = {}
        for first, last, count in acquired:
            assert first <= last
            for o in range(first, last + 1):
                assert o not in granted
                granted[o] = count
        now_archived = {
            run_offset
            for run_offset, record in records_of(self.real.in_flight.runs).items()
            if record.state == ARCHIVED
        }
        for o, record in self.records.items():
            if o in granted:
                assert record.state == AVAILABLE, "invariant 55: a record has two holders"
                assert o not in aborted
                record.state, record.member, record.count = ACQUIRED, member, record.count + 1
                record.deadline_ms = self.now_ms + self.settings.lock_duration_ms
                assert granted[o] == record.count <= self.settings.delivery_count_limit
                if o not in self.given_back_unwritten:
                    assert record.count >= self.delivered.get(o, 0), "invariant 58: the delivery count has fallen"
                self.delivered[o] = record.count
            elif record.state == AVAILABLE and (o in now_archived or o < self.real.start_offset):
                assert o in aborted or o in holes or o < offset or self.is_hole(o), (
                    f"invariant 57: {o} is archived, and was not delivered"
                )
                record.state, record.count = ARCHIVED, record.count + (o in aborted)
        self.drop_done()

    def is_hole(self, offset: int) -> bool:
        return not any(batch.first <= offset <= batch.last for batch in self.log.batches)

    def acknowledge(self, member: str, acknowledgements: list[Acknowledgement]) -> bool:
        """Return whether the acknowledgement was accepted."""
        expected = self.judge(member, acknowledgements)
        try:
            update = self.real.acknowledge(member, acknowledgements, self.now_ms)
        except KafkaError as error:
            assert error.code == expected
            self.compare()
            return False
        assert expected == ErrorCode.NONE
        for first, last, types in acknowledgements:
            for index, o in enumerate(range(first, last + 1)):
                kind = types[0] if len(types) == 1 else types[index]
                record = self.records.get(o)
                if record is None:
                    continue
                if kind == 4:
                    record.deadline_ms = self.now_ms + self.settings.lock_duration_ms
                else:
                    record.target = self.outcome(record, OUTCOMES[kind], is_gap=kind == 0)
        self.begin(update)
        return True

    def judge(self, member: str, acknowledgements: list[Acknowledgement]) -> ErrorCode:
        seen: set[int] = set()
        for first, last, types in acknowledgements:
            if last < self.start:
                continue
            if not self.records:
                return ErrorCode.INVALID_RECORD_STATE
            if last >= self.end:
                return ErrorCode.INVALID_REQUEST
            for index, o in enumerate(range(first, last + 1)):
                if o < self.start:
                    continue
                record = self.records[o]
                if o in seen or not record.is_held or record.member != member:
                    return ErrorCode.INVALID_RECORD_STATE
                kind = types[0] if len(types) == 1 else types[index]
                if kind == 4 and not self.settings.renew_enabled:
                    return ErrorCode.INVALID_RECORD_STATE
                seen.add(o)
        return ErrorCode.NONE

    def outcome(self, record: Record, target: RecordState, *, is_gap: bool = False) -> RecordState:
        if target == AVAILABLE and record.count >= self.settings.delivery_count_limit:
            target = ARCHIVED
        return ARCHIVING if target == ARCHIVED and self.settings.dead_letters and not is_gap else target

    def bury(self) -> None:
        """Begin to write the dead letters of all records that need one."""
        runs = self.real.take_dead()
        offsets = [o for run in runs for o in range(run.first, run.last + 1)]
        expected = {o for o, record in self.records.items() if record.state == ARCHIVING} - self.taken
        assert len(offsets) == len(set(offsets)) and set(offsets) == expected, "a record has no dead letter, or two"
        self.taken |= expected
        if runs:
            self.burying.append(runs)

    def archive(self) -> None:
        """End the writing of the oldest dead letters."""
        runs = self.burying.pop(0)
        update = self.real.archive(runs)
        for run in runs:
            for o in range(run.first, run.last + 1):
                self.records[o].target = ARCHIVED
        self.begin(update)

    def release(self, member: str) -> None:
        self.give_back(self.real.release(member), lambda record: record.member == member)

    def time_out(self) -> None:
        self.give_back(self.real.time_out(self.now_ms), lambda record: record.deadline_ms <= self.now_ms)
        deadline = self.real.next_deadline_ms
        assert deadline == min((r.deadline_ms for r in self.records.values() if r.is_held), default=None)

    def give_back(self, update: Update | None, concerns: Callable[[Record], bool]) -> None:
        for record in self.records.values():
            if record.is_held and concerns(record):
                record.target = self.outcome(record, AVAILABLE)
        self.begin(update)

    def begin(self, update: Update | None) -> None:
        if update is not None:
            self.writing.append((update, self.real.start_offset))
        self.compare()

    def end_write(self, *, stored: bool) -> None:
        """End the oldest write."""
        update, start = self.writing.pop(0)
        concerned = {o for run in update.runs for o in range(run.first, run.last + 1)}
        if not stored:
            self.real.not_written(update, self.now_ms)
            for o in concerned & self.records.keys():
                record = self.records[o]
                record.target = None
                if record.state == ARCHIVING:
                    record.state = ARCHIVED
                elif record.deadline_ms <= self.now_ms:
                    record.state, record.member = self.outcome(record, AVAILABLE), ""
                    self.given_back_unwritten.add(o)
        else:
            for first, last, state, count in update.batches:
                for o in range(first, last + 1):
                    self.stored[o] = (RecordState(state), count)
                    self.given_back_unwritten.discard(o)
            self.stored_start = max(self.stored_start, start)
            self.real.written(update)
            for o in concerned & self.records.keys():
                record = self.records[o]
                assert record.target is not None
                record.state, record.target, record.member = record.target, None, ""
        self.drop_done()
        self.compare()

    def move_log_start(self, offset: int) -> None:
        self.log.start = max(self.log.start, offset)
        self.log.batches = [batch for batch in self.log.batches if batch.last >= self.log.start]
        self.real.move_log_start(self.log.start)
        self.move_start(self.log.start)
        self.compare()

    def move_start(self, offset: int) -> None:
        for o in [o for o in self.records if o < offset]:
            del self.records[o]
        self.start = max(self.start, offset)
        self.end = max(self.end, self.start)
        self.drop_done()

    def drop_done(self) -> None:
        while self.start in self.records and self.records[self.start].state in DONE:
            self.finished.add(self.start)
            del self.records[self.start]
            self.start += 1

    # -- Comparing ---------------------------------------------------------------------------------------------------

    def compare(self) -> None:
        flight = self.real.in_flight
        assert (flight.start, flight.end) == (self.start, self.end)
        real = records_of(flight.runs)
        assert [run.first for run in flight.runs] == flight._firsts
        assert list(real) == list(range(self.start, self.end)), "there is a gap between the runs"
        for o, record in self.records.items():
            same = real[o]
            assert (same.state, same.target, same.member) == (record.state, record.target, record.member), o
            if record.state not in DONE:
                assert same.count == record.count, o
            if record.state == ACQUIRED:
                assert same.deadline_ms == record.deadline_ms, o
        assert flight.available == sum(r.state == AVAILABLE for r in self.records.values())
        assert flight.finished == sum(r.state in DONE or r.target in DONE for r in self.records.values())
