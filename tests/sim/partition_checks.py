"""Holds a real `Log` against a `PartitionModel`: invariants 2, 10, 11, 12, 16, 26-28, 31, 43 and 44 of one replica (invariant 36)."""

from __future__ import annotations

import random
from itertools import pairwise

from ottla.protocol.records.batch import HEADER, iter_batches
from ottla.storage.log.log import Log
from ottla.storage.log.replay import update_producers
from ottla.storage.producers.producer_states import ProducerStates
from tests.protocol.records.reference import crc_is_valid
from tests.sim.partition_model import Aborted, PartitionModel, Producers, Stored, committed_records, fold
from tests.storage.logs_for_tests import max_timestamp, offset_for_timestamp


def batches_of(log: Log, start: int | None = None) -> list[Stored]:
    return [Stored(bytes(view.buffer)) for view in log.batches(log.log_start_offset if start is None else start)]


def check_recovered(log: Log, model: PartitionModel, *, power: bool) -> None:
    """Check that the model allows the log that a crash left; afterwards the model has the log's content."""
    start, end = log.log_start_offset, log.log_end_offset
    if model.reset_to is not None and not _continues(log, model, power):
        # The log was being emptied to start at another offset: whatever exists only has to be valid.
        model.reset(start)
        model.high_watermark = log.high_watermark
        model.batches, model.end = batches_of(log), end
        model.producers = Producers(model.batches)
    else:
        _check_extent(log, model, power)
        everything = [*model.batches, *model.tail]
        kept = [batch for batch in everything if batch.last < end]
        model.batches, model.end = kept, end
        model.producers = Producers(kept)
        check_batches(log, model)
    model.start = model.kept_start = start
    model.durable_start = min(model.durable_start, start)
    model.flushed = min(max(model.flushed, log.recovery_point), end)
    model.cleaned_until = min(model.cleaned_until, end)
    model.opened_end = end
    assert start <= log.high_watermark <= end
    assert log.high_watermark <= max(model.high_watermark, start), "the high watermark was never as high"
    model.high_watermark = log.high_watermark
    model.settle()


def _continues(log: Log, model: PartitionModel, power: bool) -> bool:
    try:
        _check_extent(log, model, power)
        return True
    except AssertionError:
        return False


def _check_extent(log: Log, model: PartitionModel, power: bool) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    everything = [*model.batches, *model.tail]
    least = model.flushed if power else model.end
    if model.end_floor is not None:
        least = min(least, model.end_floor)
    # A log may end in a gap until it is opened again.
    least = max((batch.last + 1 for batch in model.batches if batch.last < least), default=min(least, model.start))
    most = everything[-1].last + 1 if everything else model.end
    assert least <= end <= max(most, model.end), f"the log ends at {end}, expected [{least}, {most}]"
    # A log that ended before its start goes on from there without records. That offset may be inside a batch whose first
    # records were deleted.
    emptied = start == end and log.segments.size == 0
    inside = [batch for batch in everything if batch.base < end <= batch.last and not emptied]
    assert not inside, f"the log ends at {end}, inside {inside}"
    start_least = model.durable_start if power else model.kept_start
    if model.end_floor is not None:
        start_least = min(start_least, model.end_floor)
    start_most = model.start if model.start_ceiling is None else max(model.start, model.start_ceiling)
    # Where there is a gap it may begin anywhere.
    behind = next((batch.base for batch in everything if batch.last >= start_most), end)
    start_most = max(start_most, behind)
    assert start_least <= start <= start_most, f"the log starts at {start}: [{start_least}, {start_most}]"


def check_batches(log: Log, model: PartitionModel) -> None:
    """Check that the bytes are those that were appended (2, 11), and that compacted batches differ only as allowed (43)."""
    start, end = log.log_start_offset, log.log_end_offset
    assert end == model.end, f"the log ends at {end}, the model at {model.end}"
    found = batches_of(log)
    for before, after in pairwise(found):
        assert before.last < after.base and before.epoch <= after.epoch, f"{before} then {after}"
    assert all(crc_is_valid(batch.view) for batch in found)
    wanted = model.readable(start)
    if model.cleaned_until <= start:
        for one, other in zip(found, wanted, strict=False):
            assert one.data == other.data, f"{one} where {other} was appended"
        assert len(found) == len(wanted), f"{len(found)} batches where {len(wanted)} were appended"
        return
    check_compacted(log, model, found)


def check_compacted(log: Log, model: PartitionModel, found: list[Stored]) -> None:
    until = model.cleaned_until
    wanted = model.readable(log.log_start_offset)
    tails = [[b.data for b in batches if b.base >= until] for batches in (found, wanted)]
    assert tails[0] == tails[1], f"compaction up to {until} touched what is behind it"
    by_base = {batch.base: batch for batch in wanted}
    for batch in found:
        original = by_base.get(batch.base)
        assert original is not None and batch.last == original.last, f"{batch} was never appended"
        records = {record.offset: record[1:] for record in original.records}
        assert all(records.get(record.offset) == record[1:] for record in batch.records), f"{batch} of {original}"
    check_fold(log, model, found)
    check_last_sequences(log, model, found)


def check_fold(log: Log, model: PartitionModel, found: list[Stored]) -> None:
    """Invariant 43: the last values in the compacted log are the last values in its whole history."""
    start, end = log.log_start_offset, log.log_end_offset
    # The high watermark may be lower after a crash; cleaned records had been committed.
    stable = min(max(log.last_stable_offset, model.cleaned_until), end)
    aborted = [
        Aborted(t.producer_id, t.first_offset, t.last_offset) for t in log.segments.aborted_transactions(start, end)
    ]
    assert fold(committed_records(found, aborted, start, stable)) == fold(
        committed_records(model.readable(start), model.producers.aborted, start, stable)
    ), "the last values of the keys differ"


def check_last_sequences(log: Log, model: PartitionModel, found: list[Stored]) -> None:
    """Invariant 44: the last batch of a producer stays, perhaps without records: a restart reads the sequence number there."""
    lasts = {batch.last: batch.view for batch in found}
    for state in log.producers:
        if state.last_offset >= max(log.log_start_offset, model.blurred):
            view = lasts.get(state.last_offset)
            assert view is not None, f"the last batch of producer {state.producer_id}, at {state.last_offset}, is gone"
            assert (view.producer_id, view.last_sequence) == (state.producer_id, state.last_sequence)


def check_pass(log: Log, model: PartitionModel, before: list[Stored], stable: int, now_ms: int) -> None:
    """Invariant 44, for one pass over a log that held `before`; meanwhile, records were appended, and removed at the start."""
    start, config = log.log_start_offset, log.config
    after = {batch.base: batch for batch in batches_of(log)}
    before = [batch for batch in before if batch.base >= start]
    for batch in before:
        young = batch.view.max_timestamp > now_ms - config.min_compaction_lag_ms > 0 < config.min_compaction_lag_ms
        if batch.last >= stable or young:
            left = after.get(batch.base)
            assert left is not None and left.data == batch.data, f"{batch} was not to be touched, and is {left}"
    check_tombstones(model, before, after, start, stable, now_ms, config.delete_retention_ms)
    check_markers(before, after, now_ms)


def check_tombstones(
    model: PartitionModel,
    before: list[Stored],
    after: dict[int, Stored],
    start: int,
    stable: int,
    now_ms: int,
    retention_ms: int,
) -> None:
    """A tombstone that is the last record of a key stays until the horizon that its first pass gave it."""
    last = {bytes(r.key or b""): r for r in committed_records(before, model.producers.aborted, start, stable)}
    tombstones = {record.offset for record in last.values() if record.value is None}
    for batch in before:
        horizon, left = batch.view.delete_horizon, after.get(batch.base)
        if horizon is None or horizon > now_ms:
            missing = {r.offset for r in batch.records if not batch.view.is_control and r.offset in tombstones}
            missing -= {r.offset for r in left.records} if left is not None else set()
            assert not missing, f"tombstones {missing} of {batch} are gone before {horizon}, at {now_ms}"
        if horizon is None and left is not None and left.view.delete_horizon is not None:
            assert left.view.delete_horizon == now_ms + retention_ms, f"{left}"


def check_markers(before: list[Stored], after: dict[int, Stored], now_ms: int) -> None:
    """A marker stays until its horizon, and as long as a record of its transaction exists."""
    data: dict[int, list[int]] = {}
    for batch in before:
        view = batch.view
        if not view.is_control:
            if view.is_transactional:
                data.setdefault(view.producer_id, []).append(batch.base)
            continue
        bases = data.pop(view.producer_id, [])
        left = after.get(batch.base)
        if view.count and (left is None or not left.view.count):
            assert view.delete_horizon is not None and view.delete_horizon <= now_ms, f"{batch} went before its time"
            kept = [base for base in bases if base in after and after[base].view.count]
            assert not kept, f"{batch} went before the batches {kept} of its transaction"


def check_producers(log: Log, model: PartitionModel, *, exact: bool = False) -> None:
    """The producer state is a function of the log (28); `exact`: there was no restart since."""
    start, stable = log.log_start_offset, log.last_stable_offset
    assert start <= stable <= log.high_watermark, f"the last stable offset {stable} is not in the committed log"
    compacted = model.cleaned_until > 0
    if not compacted:
        check_producers_are_a_function_of_the_log(log)
    visible = Producers(model.readable(log.log_start_offset)).by_id
    for producer_id, state in log.producers.states.items():
        reference = model.producers.by_id.get(producer_id)
        if model.blurred and (reference is None or reference.last_offset < model.blurred):
            continue
        actual = (state.epoch, state.last_sequence, state.last_offset)
        open_since, allowed, opened = state.current_txn_first_offset, [], []
        for producer in (model.producers.by_id.get(producer_id), visible.get(producer_id)):
            if producer is not None:
                last = producer.sent[-1] if producer.sent else None
                allowed.append((producer.epoch, last.last_sequence if last else -1, last.last_offset if last else -1))
                opened.append(producer.open_since)
        # Deletions before a restart are not known after it: neither the last batch nor the begin of a transaction.
        forgotten = allowed[0][2] < log.log_start_offset and actual == (allowed[0][0], -1, -1)
        assert actual in allowed or forgotten, f"producer {producer_id} is {actual}, the log says {allowed}"
        latest = max(opened[-1], log.log_start_offset) if opened[0] >= 0 else -1
        assert open_since in opened or 0 <= opened[0] <= open_since <= latest or (open_since < 0 and forgotten), (
            f"open since {open_since}, not {opened}"
        )
        assert reference is not None
        if not compacted:
            assert state.coordinator_epoch in (
                reference.coordinator_epoch,
                visible[producer_id].coordinator_epoch if producer_id in visible else -1,
            )
        remembered = [(batch.first_sequence, batch.last_sequence, batch.last_offset) for batch in state.batches]
        sent = [(batch.first_sequence, batch.last_sequence, batch.last_offset) for batch in reference.sent]
        if compacted:  # a restart does not find the deleted batches in between
            known = set(remembered)
            sent = [batch for batch in sent if batch in known]
            remembered = remembered[len(remembered) - len(sent) :]
        assert remembered == sent[len(sent) - len(remembered) :], f"{remembered} is not the end of {sent}"
        if exact:
            assert remembered == sent
    if not compacted:
        assert set(visible) <= set(log.producers.states), "a producer was forgotten"
        first_open = min((p.open_since for p in visible.values() if p.open_since >= 0), default=None)
        if first_open is not None:
            assert log.last_stable_offset <= max(first_open, log.log_start_offset), "an open transaction is shown"


def check_producers_are_a_function_of_the_log(log: Log) -> None:
    """Invariant 28, without the model: after a replay of the existing batches the state is the same, no matter what was loaded
    from snapshots.
    """
    replayed, start = ProducerStates(), log.log_start_offset
    for batch in log.batches(start):
        if batch.producer_id >= 0:
            header = HEADER.unpack_from(batch.buffer)
            update_producers(replayed, header, batch.buffer)
    for state in replayed:
        known = log.producers.states.get(state.producer_id)
        assert known is not None, f"{state} is in the log, and not known"
        assert known.epoch == state.epoch, f"{known}, replayed {state}"
        if state.coordinator_epoch >= 0:
            assert known.coordinator_epoch == state.coordinator_epoch, f"{known}, replayed {state}"
        # Timestamps are not compared: Kafka's snapshots have one for each producer, and after a marker it is the marker's.
        remembered = [batch[:3] for batch in known.batches]
        replayed_batches = [batch[:3] for batch in state.batches][-len(remembered) or len(state.batches) :]
        assert remembered[-len(replayed_batches) or len(remembered) :] == replayed_batches, f"{known}, replayed {state}"
        first, known_first = state.current_txn_first_offset, known.current_txn_first_offset
        assert first == known_first or (0 <= known_first < start), f"{known}, replayed {state}"


def check_epochs(log: Log, model: PartitionModel) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    entries = log.epochs.entries
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries)), f"epochs {entries}"
    assert not entries or entries[-1][1] <= end, f"epochs {entries} of a log that ends at {end}"
    batches = batches_of(log)
    for batch in batches:
        at = max(batch.base, start)
        assert log.epochs.epoch_of(at) == batch.epoch, f"offset {at}: epochs {entries}, but {batch}"
    for epoch in {batch.epoch for batch in batches}:
        least = max(batch.last + 1 for batch in batches if batch.epoch <= epoch)
        most = next((batch.base for batch in batches if batch.epoch > epoch), end)
        answer = log.end_offset_for_epoch(epoch)
        assert answer[0] == epoch and least <= answer[1] <= most, f"epoch {epoch} ends in [{least}, {most}]: {entries}"


def check_lookups(log: Log, model: PartitionModel, rng: random.Random) -> None:
    """Offsets, timestamps and aborted ranges that are found through the indexes are those found without them (16)."""
    start, end = log.log_start_offset, log.log_end_offset
    batches = batches_of(log)
    for offset in rng.sample(range(start, end), min(6, end - start)):
        got = log.read(offset, max_bytes=rng.choice((1, 300, 2000, 100_000)))
        found = [Stored(bytes(view.buffer)) for view in iter_batches(got.records)]
        wanted = [batch.data for batch in batches if batch.last >= offset]
        assert [batch.data for batch in found] == wanted[: len(found)] and len(found) >= min(1, len(wanted))
        assert sum(len(batch.data) for batch in found) == len(got.records), "more than whole batches"
    records = [record for batch in batches for record in batch.records if record.offset >= start]
    timestamps = sorted({record.timestamp for record in records})
    for timestamp in rng.sample(timestamps, min(4, len(timestamps))):
        for wanted_ts in (timestamp, timestamp + 1):
            first = next((r for r in records if r.timestamp >= wanted_ts), None)
            answer = offset_for_timestamp(log, wanted_ts)
            assert (answer[:2] if answer else None) == ((first.timestamp, first.offset) if first else None)
    # A batch without records keeps its largest timestamp for its producer: then no record may have it.
    emptied = max((batch.view.max_timestamp for batch in batches if not batch.view.count), default=-1)
    if timestamps and emptied < timestamps[-1]:
        largest = max_timestamp(log)
        first = next(r for r in records if r.timestamp == timestamps[-1])
        assert largest is not None and largest[:2] == (first.timestamp, first.offset)
    if model.cleaned_until == 0:
        check_aborted(log, model, rng)


def check_aborted(log: Log, model: PartitionModel, rng: random.Random) -> None:
    start, end = log.log_start_offset, log.log_end_offset
    known = [txn for txn in model.producers.aborted if start <= txn.last < end]
    ranges = [(start, end), *(sorted((rng.randint(start, end), rng.randint(start, end))) for _ in range(2))]
    for low, high in ranges:
        found = {
            (txn.producer_id, txn.last_offset): txn.first_offset for txn in log.segments.aborted_transactions(low, high)
        }
        for txn in known:
            if txn.last >= low and txn.first < high:
                first = found.pop((txn.producer_id, txn.last), None)
                if first is None and txn.first < start and not _has_data(model, txn, max(low, start), high):
                    continue  # the log begins after some of its records, and a restart does not know them
                assert first is not None, f"{txn} was aborted, and [{low}, {high}) does not say so"
                assert first == txn.first or txn.first < start, f"{txn} begins at {first}"
        stray = {key: first for key, first in found.items() if not any(key == (t.producer_id, t.last) for t in known)}
        assert not stray, f"never aborted: {stray}"


def _has_data(model: PartitionModel, txn: Aborted, low: int, high: int) -> bool:
    return any(
        batch.view.producer_id == txn.producer_id and batch.last >= low and batch.base < high
        for batch in model.batches
        if txn.first <= batch.base < txn.last and not batch.view.is_control
    )


def facts(log: Log) -> tuple[object, ...]:
    """Return everything that a second restart must find again."""
    producers = sorted(
        (s.producer_id, s.epoch, s.coordinator_epoch, s.last_sequence, s.last_offset, s.current_txn_first_offset)
        for s in log.producers
    )
    content = b"".join(batch.data for batch in batches_of(log))
    aborted = sorted(log.segments.aborted_transactions(log.log_start_offset, log.log_end_offset))
    return (log.log_start_offset, log.log_end_offset, log.high_watermark, content, producers, aborted)
