"""The histories of a node's logs find bugs: known mistakes are inserted at run time, and each must be caught within some seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.protocol.records.batch import crc32c
from ottla.storage import checkpoint
from ottla.storage.directories import log_checkpoints, log_dirs, logs, recovery
from ottla.storage.directories.log_checkpoints import LogCheckpoints
from ottla.storage.directories.logs import Logs
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.files import Files
from ottla.storage.log import durability, replay
from ottla.storage.log.durability import Durability
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import PartitionDir
from ottla.storage.log_config import NEVER
from ottla.storage.producers import producer_snapshots
from ottla.storage.producers.producer_snapshots import ProducerSnapshots
from ottla.storage.producers.producer_states import ProducerState, ProducerStates
from ottla.storage.segment import segment_check, segment_file
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_file import SegmentFile
from ottla.storage.segment.segment_indexes import SegmentIndexes
from ottla.storage.segment.txn_index import TransactionIndex
from ottla.storage.segment.walk import WALK, ColdBytes
from tests.histories import Mutant, Patch, assert_noticed, each_mistake
from tests.sim.directed_histories import storage_histories_of


class EqualToAll(int):
    """A checksum that no comparison can refuse."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None


def nothing(*args: object, **kwargs: object) -> None:
    return None


def always(*args: object, **kwargs: object) -> bool:
    return True


def raise_without_limit(log: Log, offset: int) -> bool:
    raised, log.high_watermark = offset > log.high_watermark, max(offset, log.high_watermark)
    return raised


def share_states(producers: ProducerStates) -> list[ProducerState]:
    return list(producers.states.values())


_write_frozen = ProducerSnapshots.write_frozen


def write_frozen_as_it_was(
    snapshots: ProducerSnapshots,
    frozen: dict[int, list[ProducerState]],
    written: list[int],
    is_current: Callable[[], bool],
) -> None:
    """Write the states as they were when they were frozen, even if they have changed meanwhile."""
    kept = snapshots.kept_frozen = {**getattr(snapshots, "kept_frozen", {}), **frozen}
    known = {offset: states for offset, states in kept.items() if offset not in snapshots.offsets}
    _write_frozen(snapshots, known, written, always)


_flush_epochs = LeaderEpochs.flush


def write_epochs_without_sync(history: LeaderEpochs) -> bool:
    syncing, history._files = history._files, NoSyncs(history._files)
    try:
        _flush_epochs(history)
    finally:
        history._files = syncing
    return False


class NoSyncs:
    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> object:
        return nothing if name == "sync_file" else getattr(self._files, name)


def write_without_sync(files: object, path: str, offsets: dict[tuple[str, int], int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    checkpoint.write_lines(files, path, lines, sync=False)


def erase_without_sync(segment: Segment, end: int, end_offset: int) -> None:
    segment.file.zero(segment.file.size, end)
    segment.txn_index.truncate_to(segment.file.files, end_offset)
    segment.indexes.save()


_close = Log.close


def close_and_claim_success(log: Log, clean: bool = True, *, entry: bool = True) -> bool:
    _close(log, clean, entry=entry)
    return True


def remember_last_batch_only(state: ProducerState, epoch: int, first: int, last: int) -> None:
    return None


_flush = Log.flush


def cover_what_came_later(log: Log, now_ms: int = 0) -> None:
    _flush(log, now_ms)
    if not log.closed:
        log.durability.recovery_point = log.log_end_offset


def cover_what_was_truncated(log: Log, now_ms: int = 0) -> None:
    end = log.log_end_offset
    _flush(log, now_ms)
    log.durability.recovery_point = max(log.recovery_point, end)


def stable_below_the_start(log: Log) -> int:
    if log.producers.first_unstable_offset() < 0:
        return log.high_watermark
    return min(log.producers.first_unstable_offset(), log.high_watermark)


def trim_at_once(file: SegmentFile) -> None:
    file.unmap()
    if (file.files.size(file.log_path) or 0) > file.size:
        file.files.truncate(file.log_path, file.size)


def walk_on(
    buffer: memoryview, position: int, end: int, path: str, base_offset: int, limit: int, reach: object = None
) -> Iterator[tuple[int, int, int, int]]:
    """Every length is believed."""
    while position < end:
        base, length, _, delta = WALK.unpack_from(buffer, position)
        assert length + 12 > 0, "for ever"
        yield position, position + length + 12, base, base + delta
        position += length + 12


def reach_all(file: SegmentFile, position: int, end: int | None = None) -> int:
    file.view()
    return file.size


def check_nothing(cold: ColdBytes, buffer: object, batches: object, start: int, end: int, path: str) -> int:
    return end


def open_and_cut(*args: object, clean: bool, recovery_point: int, **kwargs: object) -> Log:
    return _open_log(*args, clean=clean, recovery_point=0 if clean else recovery_point, **kwargs)


_open_log = recovery.open_log
_take_clean_mark = log_dirs.take_clean_mark


def leave_the_clean_mark(files: Files, directory: str) -> tuple[bool, int]:
    path = f"{directory}/{log_dirs.CLEAN_MARK}"
    data = files.read(path)
    answer = _take_clean_mark(files, directory)
    if data is not None:
        files.write_atomic(path, data)
    return answer


def raise_it(self: Logs, path: str, name: object, error: Exception) -> None:
    raise error


NO_CUT = property(lambda self: NEVER, lambda self, value: None)
ALWAYS = property(lambda self: True, lambda self, value: None)
NEVER_FAILED = property(lambda self: None, lambda self, value: None)

#: the mistake, the place where it is inserted, and its code
MUTANTS: dict[str, Patch] = {
    "the directory of a new partition is not synced": (Durability, "entry_synced", ALWAYS),
    "recovery trusts a torn batch": (segment_check, "crc32c", lambda data: EqualToAll(crc32c(data))),
    "checkpoints are written without fsync": (log_checkpoints, "write_offsets", write_without_sync),
    "producer snapshots stay after a truncation": (ProducerSnapshots, "leave", lambda snapshots, is_gone: []),
    "the dedupe window is zero": (ProducerState, "duplicate_of", remember_last_batch_only),
    "the high watermark may be ahead of the log": (Log, "advance_high_watermark", raise_without_limit),
    "a flush syncs no log": (SegmentFile, "sync", nothing),
    "a flush syncs no epochs": (LeaderEpochs, "flush", write_epochs_without_sync),
    "a truncation is not synced": (Segment, "erase", erase_without_sync),
    "a truncation leaves the checkpoints as they are": (LogCheckpoints, "lower", nothing),
    "a restart leaves checkpoints beyond the log's end": (LogCheckpoints, "_lower_to_ends", nothing),
    "a new topic inherits a deleted one's checkpoints": (LogCheckpoints, "forget", nothing),
    "the topic id is not synced": (durability, "sync_topic_id", nothing),
    "transaction indexes keep what was truncated": (TransactionIndex, "truncate_to", nothing),
    "a marker is appended before there is room for its entry": (TransactionIndex, "make_room", nothing),
    "aborted transactions are not listed again": (TransactionIndex, "append_if_missing", nothing),
    "every stop claims to be clean": (Log, "close", close_and_claim_success),
    "a failed log takes writes": (PartitionDir, "failure", NEVER_FAILED),
    "a truncation cut short is built upon": (SegmentFile, "settle_tail", nothing),
    "what a failed fsync left is taken for written": (SegmentFile, "rewrite", nothing),
    "log starts are not written down": (LogCheckpoints, "write_log_starts", nothing),
    "a flush covers what came while it ran": (Log, "flush", cover_what_came_later),
    "a flush covers what was truncated under it": (Log, "flush", cover_what_was_truncated),
    "epochs keep what was truncated": (LeaderEpochs, "truncate_from_end", nothing),
    "epochs are not read again from the batches": (recovery, "_read_epochs", nothing),
    "an index is taken as it is": (SegmentIndexes, "_fits", always),
    "a time index is taken as it is": (SegmentIndexes, "_has_timestamp", always),
    "the last stable offset is below the log's start": (Log, "last_stable_offset", property(stable_below_the_start)),
    "a file is trimmed below what a view shows": (SegmentFile, "trim", trim_at_once),
    "a walk believes every length": (segment_file, "walk", walk_on),
    "pages are touched that the disk may not have": (SegmentFile, "reach", reach_all),
    "what an earlier process wrote is not checked": (ColdBytes, "check", check_nothing),
    "a clean start cuts off what is damaged": (logs, "open_log", open_and_cut),
    "a crash after a clean stop counts as clean": (log_dirs, "take_clean_mark", leave_the_clean_mark),
    "one damaged partition keeps the node from starting": (Logs, "_leave_closed", raise_it),
    "a checkpoint written beside a truncation says too much": (Durability, "truncating_to", NO_CUT),
    "a damaged snapshot is loaded": (producer_snapshots, "crc32c", lambda data: EqualToAll(crc32c(data))),
    "producers go on in a snapshot that is not written yet": (ProducerStates, "freeze", share_states),
    "a snapshot is written of what was truncated": (ProducerSnapshots, "write_frozen", write_frozen_as_it_was),
    "a damaged transaction index is not made again": (replay, "check_txn_indexes", nothing),
}


def is_noticed(name: str, seed: int) -> bool:
    return any(Mutant(name, (MUTANTS[name],)).is_noticed(history.run) for history in storage_histories_of(seed))


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_the_mutant_is_noticed(name: str) -> None:
    """The same seeds run without a mutant in test_storage_crashes.py."""
    assert_noticed("storage", name, is_noticed)
