"""The leader's state of one share partition: who holds which records, how often each was delivered, which ones are done
(KIP-932).

It decides only; time comes as an argument. A change that the persister has to know is an `Update`: its records keep their state
and cannot be changed again until the caller reports that the update is written (`written`) or is not (`not_written`).
So no record is seen as acknowledged, released or timed out before that is on the share coordinator's disk, and its delivery
count never falls, even if this leader is killed. Kafka releases records of a lock that timed out before it writes.

Acquired records are not written: a new leader delivers them again, with the count that was last written. Records that get a dead
letter are ARCHIVING first, and written so: a new leader has the dead letters written again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from ottla.broker.share.fetched import Acquired, Acquisition, Span
from ottla.broker.share.in_flight import OUTCOMES, AcknowledgeType, InFlightRecords, RecordState, Run, released
from ottla.broker.share.share_state import ShareState, StateBatch
from ottla.protocol.errors import ErrorCode, KafkaError

#: From half of the deliveries on, and from the second at the earliest, records of a batch are delivered in smaller and smaller
#: parts, so that one bad record does not use up the deliveries of its neighbours.
THROTTLED_DELIVERIES_MIN = 2
#: If the limit of deliveries is not above this number, the last delivery of a record may contain other records.
UNISOLATED_LIMIT = 2
#: States in which no member gets the record again.
GIVEN_UP = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVING, RecordState.ARCHIVED})


class ShareSettings(NamedTuple):
    """The settings of a group for its share partitions."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2000
    renew_enabled: bool = True
    #: KIP-1191: records that are given up are ARCHIVING until they have a dead letter.
    dead_letters: bool = False

    @property
    def throttled_from(self) -> int:
        return max(THROTTLED_DELIVERIES_MIN, -(-self.delivery_count_limit // 2))


class Acknowledgement(NamedTuple):
    """One acknowledge type for all offsets, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Update(NamedTuple):
    """Records whose state changes once this update is written."""

    runs: list[Run]
    batches: list[StateBatch]


class SharePartition:
    """The records in flight of one share partition, and the decisions about them."""

    __slots__ = ("_dead", "in_flight", "settings", "state_epoch")

    def __init__(self, settings: ShareSettings, state_epoch: int, start_offset: int) -> None:
        self.settings = settings
        self.state_epoch = state_epoch
        self.in_flight = InFlightRecords(start_offset)
        #: ARCHIVING records that no dead letter is being written of.
        self._dead: list[Run] = []

    @classmethod
    def load(cls, settings: ShareSettings, state: ShareState, start_offset: int) -> SharePartition:
        """Load the state; `start_offset` is that of the state, or where the group begins if it has none.

        Offsets between the written batches were acquired, or read and not yet acquired, under an earlier leader: no member
        holds them now, and they were never released, so they are available and count as never delivered.

        Raises:
            KafkaError: the batches are out of order or begin before the start offset.
        """
        self = cls(settings, state.state_epoch, start_offset)
        flight = self.in_flight
        for first, last, state_number, count in state.batches:
            if not flight.end <= first <= last:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"batch {first}-{last} of the share state is invalid")
            if first > flight.end:
                flight.append(first - 1, RecordState.AVAILABLE, 0)
            is_given_up = state_number in GIVEN_UP
            run = flight.append(last, RecordState(state_number) if is_given_up else RecordState.AVAILABLE, count)
            if run.state == RecordState.ARCHIVING:
                # The record does not say why it was given up. Kafka also takes it for rejected below the limit of deliveries.
                run.is_rejected = count < settings.delivery_count_limit
                self._dead.append(run)
        flight.drop_finished()
        return self

    # -- Questions ---------------------------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        return self.in_flight.start

    @property
    def delivery_complete_count(self) -> int:
        return self.in_flight.finished

    @property
    def next_fetch_offset(self) -> int:
        """The first record that can be delivered: one that was released, or the next of the log."""
        available = self.in_flight.first_available()
        return self.in_flight.end if available is None else available

    @property
    def can_acquire(self) -> bool:
        return self.in_flight.available > 0 or self.in_flight.size < self.settings.max_record_locks

    @property
    def next_deadline_ms(self) -> int | None:
        """Return the time at which the first of the acquisition locks expires."""
        deadlines = [run.deadline_ms for run in self.in_flight.runs if _is_held(run)]
        return min(deadlines, default=None)

    # -- Acquiring ---------------------------------------------------------------------------------------------------

    def acquire(
        self,
        member_id: str,
        fetch_offset: int,
        batches: Sequence[Span],
        *,
        max_records: int,
        batch_size: int,
        now_ms: int,
        strict: bool = False,
        aborted: Sequence[Span] = (),
    ) -> list[Acquired]:
        """Lock records for a member, of `batches`, which were read from `fetch_offset` on.

        `max_records` may be exceeded up to the end of a record batch, unless the limit is `strict` (KIP-1206). New records are
        locked in parts of about `batch_size` that end with a record batch, so that clients can acknowledge them in one piece.
        `aborted` records are archived instead.
        """
        flight = self.in_flight
        if not batches or max_records <= 0 or batches[-1].last < flight.start:
            return []
        base, last = batches[0].first, batches[-1].last
        room = self.settings.max_record_locks - flight.size
        limit = min(max_records, room)
        if room <= 0:
            if fetch_offset >= flight.end:
                return []
            limit = min(max_records, flight.end - fetch_offset)
            last = min(last, flight.end - 1)
        if base > fetch_offset:
            self._archive_missing(fetch_offset, base)
        taking = Acquisition(batches, limit, strict=strict)
        self._take_again(taking, base, last)
        if not taking.is_full and last >= flight.end:
            self._take_new(taking, base, last, batch_size)
        deadline_ms = now_ms + self.settings.lock_duration_ms
        for run in taking.runs:
            flight.change(run, RecordState.ACQUIRED)
            run.count += 1
            run.member = member_id
            run.deadline_ms = deadline_ms
        if aborted and taking.runs:
            taking.runs = self._without_aborted(taking.runs, aborted)
        return taking.acquired()

    def _archive_missing(self, fetch_offset: int, base: int) -> None:
        """The log has nothing from `fetch_offset` to `base`."""
        flight = self.in_flight
        gone = [run for run in flight.overlapping(fetch_offset, base - 1) if run.state == RecordState.AVAILABLE]
        for run in gone:
            for part in flight.cut(max(run.first, fetch_offset), min(run.last, base - 1)):
                flight.change(part, RecordState.ARCHIVED)
        if base > flight.end:
            if flight.runs:
                flight.append(base - 1, RecordState.ARCHIVED, 0)
            else:
                flight.restart(base)
        flight.drop_finished()

    def _take_again(self, taking: Acquisition, base: int, last: int) -> None:
        """Acquire again records that were delivered before, or that no member has acquired since the state was loaded."""
        flight, settings = self.in_flight, self.settings
        if not flight.available:
            return
        throttled: Run | None = None
        for run in flight.overlapping(base, last):
            if taking.is_full:
                return
            if run.state != RecordState.AVAILABLE:
                continue
            is_last_delivery = run.count == settings.delivery_count_limit - 1 > UNISOLATED_LIMIT - 1
            if throttled is not None and run.batch is not throttled.batch:
                taking.is_full = True
                return
            if run.count >= settings.throttled_from and throttled is None:
                if taking.count:
                    taking.is_full = True
                    return
                throttled = run
                part = max(1, run.batch.size >> (run.count - settings.throttled_from + 1))
                taking.limit = min(taking.limit, part)
                taking.strict = True
            if is_last_delivery:
                if taking.count:
                    taking.is_full = True
                    return
                taking.limit, taking.strict = 1, True
            first = max(run.first, base)
            taking.add(flight.cut(first, taking.last_from(first, min(run.last, last))))
        taking.is_full = taking.is_full or throttled is not None

    def _take_new(self, taking: Acquisition, base: int, last: int, batch_size: int) -> None:
        flight = self.in_flight
        first = max(base, flight.end)
        if not flight.runs:
            flight.restart(first)
        last = taking.last_from(first, last)
        if not taking.strict and last - first + 1 > batch_size:
            for batch in taking.batches:
                if batch.first > last:
                    break
                if batch.first - flight.end >= batch_size:
                    taking.add([flight.append(batch.first - 1, RecordState.AVAILABLE, 0)])
        taking.add([flight.append(last, RecordState.AVAILABLE, 0)])

    def _without_aborted(self, runs: list[Run], aborted: Sequence[Span]) -> list[Run]:
        flight = self.in_flight
        taken = [(run.first, run.last) for run in runs]
        for first, last in taken:
            for span in aborted:
                if span.first <= last and span.last >= first:
                    for part in flight.cut(max(first, span.first), min(last, span.last)):
                        flight.change(part, RecordState.ARCHIVED)
        left = [run for span in taken for run in flight.overlapping(*span) if run.state == RecordState.ACQUIRED]
        flight.drop_finished()
        return left

    # -- Giving back -------------------------------------------------------------------------------------------------

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement], now_ms: int) -> Update | None:
        """Acknowledge records. Return the update to write, None if there is nothing to write.

        Raises:
            KafkaError: INVALID_RECORD_STATE if the member does not hold one of the records, INVALID_REQUEST for offsets that
                were never acquired; nothing is changed then.
        """
        flight = self.in_flight
        decided: list[tuple[Span, AcknowledgeType]] = []
        checked_to = -1
        for acknowledgement in acknowledgements:
            if acknowledgement.last_offset < flight.start:
                continue
            self._check_range(acknowledgement)
            for span, kind in _by_type(acknowledgement):
                if span.last < flight.start:
                    continue
                first = max(span.first, flight.start)
                if first <= checked_to:
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The record is acknowledged twice.")
                for run in flight.overlapping(first, span.last):
                    _check_held(run, member_id)
                if kind == AcknowledgeType.RENEW and not self.settings.renew_enabled:
                    text = "Renewing acquisition locks is not enabled for the group."
                    raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
                checked_to = span.last
                decided.append((Span(first, span.last), kind))
        changes: list[tuple[Run, RecordState]] = []
        for span, kind in decided:
            for run in flight.cut(*span):
                if kind == AcknowledgeType.RENEW:
                    run.deadline_ms = now_ms + self.settings.lock_duration_ms
                    continue
                changes.append((run, self._outcome(run, kind)))
        return self._begin(changes)

    def _outcome(self, run: Run, kind: AcknowledgeType) -> RecordState:
        if kind == AcknowledgeType.RELEASE:
            return self._released(run)
        if kind == AcknowledgeType.REJECT and self.settings.dead_letters:
            run.is_rejected = True
            return RecordState.ARCHIVING
        return OUTCOMES[kind]

    def _check_range(self, acknowledgement: Acknowledgement) -> None:
        flight = self.in_flight
        if not flight.runs:
            text = "Batch record not found. The request batch offsets are not found in the cache."
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
        if acknowledgement.last_offset >= flight.end:
            end = "first" if acknowledgement.first_offset >= flight.end else "last"
            text = f"Batch record not found. The {end} offset in request is past acquired records."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)

    def release(self, member_id: str) -> Update | None:
        """Release everything that a member holds, because it is gone."""
        held = [run for run in self.in_flight.runs if _is_held(run) and run.member == member_id]
        return self._begin([(run, self._released(run)) for run in held])

    def time_out(self, now_ms: int) -> Update | None:
        """End the locks that have lasted for their time."""
        late = [run for run in self.in_flight.runs if _is_held(run) and run.deadline_ms <= now_ms]
        return self._begin([(run, self._released(run)) for run in late])

    def _released(self, run: Run) -> RecordState:
        run.is_rejected = False
        state = released(run.count, self.settings.delivery_count_limit)
        return RecordState.ARCHIVING if state == RecordState.ARCHIVED and self.settings.dead_letters else state

    def take_dead(self) -> list[Run]:
        """Return the ARCHIVING records whose dead letters are to be written now; `archive` them afterwards."""
        dead, self._dead = [run for run in self._dead if run.size], []
        return dead

    def archive(self, runs: Sequence[Run]) -> Update | None:
        """Archive records whose dead letters are written, or have failed for good."""
        return self._begin([(run, RecordState.ARCHIVED) for run in runs if run.size])

    def _begin(self, changes: list[tuple[Run, RecordState]]) -> Update | None:
        if not changes:
            return None
        batches: list[StateBatch] = []
        for run, target in changes:
            self.in_flight.aim(run, target)
            if batches and (batches[-1].last_offset + 1, *batches[-1][2:]) == (run.first, target, run.count):
                batches[-1] = batches[-1]._replace(last_offset=run.last)
            else:
                batches.append(StateBatch(run.first, run.last, target, run.count))
        return Update([run for run, _ in changes], batches)

    def written(self, update: Update) -> None:
        """The records take the state that is written now, and the start offset moves over those that are done."""
        flight = self.in_flight
        for run in update.runs:
            if run.size:  # else the log start offset has passed it
                assert run.target is not None
                self._change(run, run.target)
        flight.merge(update.runs)
        flight.drop_finished()

    def not_written(self, update: Update, now_ms: int) -> None:
        """The member holds the records again, unless their locks have timed out meanwhile: those are released without a write."""
        flight = self.in_flight
        for run in update.runs:
            if run.size:
                flight.aim(run, None)
                if run.state == RecordState.ARCHIVING:
                    self._change(run, RecordState.ARCHIVED)  # a new leader writes the dead letter again
                elif run.deadline_ms <= now_ms:
                    self._change(run, self._released(run))
        flight.merge(update.runs)
        flight.drop_finished()

    def _change(self, run: Run, state: RecordState) -> None:
        self.in_flight.change(run, state)
        if state == RecordState.ARCHIVING:
            self._dead.append(run)

    # -- The log -----------------------------------------------------------------------------------------------------

    def move_log_start(self, offset: int) -> None:
        """The records before `offset` are gone from the log. It is written with the next update."""
        if offset > self.in_flight.start:
            self.in_flight.drop_before(offset)
            self.in_flight.drop_finished()


def _is_held(run: Run) -> bool:
    return run.state == RecordState.ACQUIRED and run.target is None


def _check_held(run: Run, member_id: str) -> None:
    if run.state != RecordState.ACQUIRED:
        text = "The batch cannot be acknowledged. The batch is not in the acquired state."
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
    if run.target is not None:
        text = "The record state is invalid. The acknowledgement of delivery could not be completed."
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
    if run.member != member_id:
        raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")


def _by_type(acknowledgement: Acknowledgement) -> list[tuple[Span, AcknowledgeType]]:
    """Successive offsets of one type are one element."""
    first, last, types = acknowledgement
    if len(types) == 1:
        return [(Span(first, last), AcknowledgeType(types[0]))]
    spans = []
    for kind, equal in groupby(types):
        count = sum(1 for _ in equal)
        spans.append((Span(first, first + count - 1), AcknowledgeType(kind)))
        first += count
    return spans
