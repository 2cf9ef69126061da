"""Opening and recovery of a log. After a clean stop it reads the end of the active segment only; after a crash, all unflushed batches.

What a crash can leave, and how recovery handles it:

    zeros after the last batch           allocated ahead; the log ends where they begin
    a partly written batch               the log ends before it
    indexes shorter than the log, or     rebuilt from the log
      damaged
    a missing producer snapshot          an older one is loaded and the batches since are read
    epochs or indexes not yet written    read from the batches, which have their leader epoch
    a malformed marker                   ends no transaction (storage.log.replay)
    a restoration from remote storage    the log is emptied: its leader has all of it (storage.log.truncate)
    files marked .deleted .cleaned .tmp  removed;  .swap: the swap of a compaction is finished

All below the recovery point was flushed: a torn tail can only lie above it. Every batch above is checked (size, magic, order of
offsets, CRC), and the log ends before the first invalid one. If it would end below the recovery point, or at a complete message of
an old format, the disk or an operator has changed the file: the partition is not opened, and its files are not changed
(`DamagedLog`). Batches below the recovery point that are not read here are checked when they are read (`storage.segment.walk`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ottla.protocol.records.batch import HEADER, PARTITION_LEADER_EPOCH
from ottla.storage import epochs
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files
from ottla.storage.log import replay
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import PARTITION_METADATA, RESTORATION, TRUNCATION, LogSpec, rewrite_topic_id
from ottla.storage.log.truncate import truncate_fully_and_start_at
from ottla.storage.producers import producer_snapshots
from ottla.storage.segment.index import RELATIVE_OFFSET_MAX
from ottla.storage.segment.segment import Segment
from ottla.storage.segment.segment_check import Valid, check_segment, clean_end
from ottla.storage.segment.segment_file import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SUFFIXES,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from ottla.storage.segment.segments import Segments
from ottla.storage.segment.walk import DamagedLog, walk

logger = logging.getLogger(__name__)

NEW_SUFFIX = ".tmp"


def open_log(spec: LogSpec, *, clean: bool, recovery_point: int = 0, log_start_offset: int = 0) -> Log:
    """Open the log in its directory, or create an empty one there.

    Raises:
        StorageFailure: the directory cannot be read or written.
        DamagedLog, CorruptFile: this partition cannot be opened; no records were removed.
    """
    files, directory = spec.files, spec.directory
    try:
        sizes = _tidy(files, directory)
    except FileNotFoundError:
        files.make_dirs(directory)
        sizes = {}
    bases = _numbers(sizes, LOG_SUFFIX)
    history = LeaderEpochs(files, f"{directory}/{epochs.FILE}")

    def segment(base: int, size: int, active: bool) -> Segment:
        made = spec.segment(base, size=size, active=active)
        if f"{base:020d}{TXN_INDEX_SUFFIX}" not in sizes:
            made.txn_index.is_missing()
        return made

    segments = [segment(base, sizes[f"{base:020d}{LOG_SUFFIX}"], base == bases[-1]) for base in bases]
    if not segments:
        segments = [segment(log_start_offset, 0, True)]
        segments[0].create_file()
    epochs_in_file = _load_epochs(history) if sizes.get(epochs.FILE) else []  # Kafka creates the file empty
    if not clean:
        if spec.config.remote_storage_enable:
            # Epochs and producer states of records that are only in remote storage cannot be read from batches again.
            recovery_point = max(recovery_point, segments[0].base_offset)
        history.forget_from(recovery_point)
    segments, end_offset = _find_end(files, directory, segments, history, clean, recovery_point)
    local_start = max(log_start_offset, segments[0].base_offset)
    start_offset = log_start_offset if spec.config.remote_storage_enable else local_start
    log = Log(
        spec,
        segments=Segments(segments),
        epochs=history,
        log_start_offset=min(start_offset, end_offset),
        local_start_offset=min(local_start, end_offset),
        log_end_offset=end_offset,
        recovery_point=end_offset if clean else min(recovery_point, end_offset),
    )
    log.snapshots.open(_numbers(sizes, producer_snapshots.SUFFIX))
    if not clean and recovery_point == 0 < end_offset:
        rewrite_topic_id(files, directory)  # a recovery point proves that its fsync succeeded
    if files.exists(f"{directory}/{TRUNCATION}"):
        log.segments.active.file.settle_tail()
        files.sync_dir(directory)
        files.remove(f"{directory}/{TRUNCATION}")
    if start_offset > end_offset:
        # The log ends before its start offset, because files were removed: it can only continue empty, from its start offset.
        logger.warning("%s: ends at %d, before its start %d: emptied", directory, end_offset, start_offset)
        truncate_fully_and_start_at(log, start_offset)
    _settle(log, clean, epochs_in_file, all_checked=not clean and recovery_point == 0)
    log.segments.active.unmap()  # most logs of a node are idle: the next access maps it again
    return log


def new_log(spec: LogSpec) -> Log:
    """Return an empty log in memory. Its directory and files are created before the first append.

    Creating a topic of 1,000 partitions takes some 10,000 system calls on every replica, on the thread that also serves clients.
    So each partition creates its files when it is first used. After a crash the partition is known from the metadata.
    """
    segment = spec.segment(0)
    segment.indexes.clear()
    log = Log(
        spec,
        segments=Segments([segment]),
        epochs=LeaderEpochs(spec.files, f"{spec.directory}/{epochs.FILE}", stored=False),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
    )
    log.partition_dir.is_not_made()
    return log


def _settle(log: Log, clean: bool, epochs_in_file: list[tuple[int, int]], *, all_checked: bool) -> None:
    """Make epochs, snapshots, transaction indexes and producer states consistent with the batches in the log.

    `all_checked`: every batch was checked, and its epoch noted.
    """
    if not all_checked and (not epochs_in_file or (not clean and _begins_before_epochs(log))):
        _read_epochs(log)
    if clean:
        log.epochs.truncate_from_end(log.log_end_offset + 1)  # an epoch may have begun in a gap at the log's end
    if not clean or not epochs_in_file:
        log.epochs.truncate_from_end(log.log_end_offset)
        log.epochs.truncate_from_start(log.log_start_offset)
        if log.epochs.entries != epochs_in_file or log.log_end_offset > log.recovery_point:
            log.epochs.store()
    if not clean:
        # Snapshots above the recovery point may be newer than the transaction index of their segment.
        log.snapshots.forget(lambda offset: offset > log.recovery_point)
    replay.check_txn_indexes(log)
    if not clean:
        if log.log_end_offset > log.recovery_point:
            logger.info(
                "Recovered unflushed segments of %s-%d from recovery point %d to log end offset %d",
                log.topic,
                log.partition,
                log.recovery_point,
                log.log_end_offset,
            )
        for segment in log.segments.from_offset(log.recovery_point):
            segment.txn_index.truncate_to(log.files, max(log.recovery_point, segment.base_offset))  # rebuilt just below
    replay.rebuild_producers(log)


def _load_epochs(history: LeaderEpochs) -> list[tuple[int, int]]:
    """Load the epochs from the file; none if it is corrupt."""
    try:
        history.load()
    except CorruptFile as error:
        logger.warning("%s: rebuilt from the batches", error)
    return history.entries


def _find_end(
    files: Files, directory: str, segments: list[Segment], history: LeaderEpochs, clean: bool, recovery_point: int
) -> tuple[list[Segment], int]:
    """Return the segments that stay, and the log end offset."""
    active, flushed_offset = segments[-1], recovery_point
    if clean and (end := clean_end(active)) is not None:
        if active.file.size and 0 < flushed_offset != end:
            # A clean stop has flushed everything, so the base offset of one of the last batches, which no CRC covers, has changed.
            # The change may also be to a smaller one, in a gap or at the batch of the last index entry.
            raise DamagedLog(
                active.file.log_path, 0, f"its batches lead to offset {end}, and the log ended at {flushed_offset}"
            )
        return segments, end
    if clean:
        recovery_point = active.base_offset
    # The segment before the recovery point is included: it was trimmed when it was sealed, after its last flush.
    first = max((i for i, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
    expected = segments[first].base_offset
    empty_behind: list[int | None] = [
        None
    ] * first  # for each segment without batches after a gap: where the gap begins
    if first + 1 < len(segments):
        # A roll syncs the directory before it trims, so that a file that has lost its end is too short for the next segment's
        # offsets. The process may have been killed before that sync: without it a lost end would look like a gap.
        files.sync_dir(directory)
    for i, segment in enumerate(segments[first:], first):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else None
        valid, before = check_segment(segment, history, recovery_point, clean), expected
        expected = valid.offset
        lost = flushed_offset > 0 if clean else valid.offset < flushed_offset and not valid.zeros
        if valid.position < segment.file.size and lost:
            # A crash does not take back flushed batches. Truncation would lose them here, and perhaps on every replica, because this
            # one counts as in sync. (Zeros alone are no proof of damage after a crash: a log may end in a gap.)
            reason = f"the batches end there, at offset {valid.offset}, and those up to {flushed_offset} were flushed"
            raise DamagedLog(segment.file.log_path, valid.position, reason)
        # Zeros may follow if a crash prevented the trim, provided that no batch is missing before the next segment.
        whole = valid.position == segment.file.size or (valid.zeros and following == expected)
        damaged = following is not None and (not whole or following < expected)
        empty_behind.append(before if valid.position == 0 and segment.base_offset > before else None)
        if empty_behind[i] is not None and (damaged or following is None):
            # No batch follows the gap, so it is no gap: the segment was created, and the batches before it are lost.
            while (gap_from := empty_behind[i - 1]) is not None:
                i, before = i - 1, gap_from
            files.create(f"{directory}/{TRUNCATION}")
            _remove(files, directory, segments[i:])
            segments[i - 1].reopen()
            return segments[:i], before
        if damaged or not valid.zeros:
            files.create(f"{directory}/{TRUNCATION}")
        if damaged:
            logger.warning(
                "%s: damaged; the %d segments after it are removed", segment.file.log_path, len(segments) - 1 - i
            )
            # Removed from the end, before the damage is truncated: after a crash in between, recovery finds the damage again, and no gap.
            _remove(files, directory, segments[i + 1 :])
            segments = segments[: i + 1]
        if valid.position < segment.file.size and not valid.zeros:
            logger.warning(
                "Corruption found in segment %s, truncating to offset %d", segment.file.log_path, valid.offset
            )
        _mend(segment, valid)
        if damaged:
            segment.reopen()
            break
    return segments, expected


def _remove(files: Files, directory: str, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.unmap()
        for name in segment.file.names():
            files.remove(name)
    files.sync_dir(directory)


def _mend(segment: Segment, valid: Valid) -> None:
    if not valid.zeros:
        logger.warning(
            "%s: truncated at byte %d of %d, offset %d",
            segment.file.log_path,
            valid.position,
            segment.file.size,
            valid.offset,
        )
    segment.cut_back(valid.position, valid.offset, valid.zeros)
    segment.file.rewrite(valid.checked_from)
    if not segment.file.active:
        segment.seal_again()
    if valid.remade and not (segment.indexes.loaded and not segment.file.active):
        segment.indexes.sync_rebuilt()


def _begins_before_epochs(log: Log) -> bool:
    """Return True if the log has records from before its epochs: a crash undid DeleteRecords, but the epochs were dropped."""
    known = log.epochs.entries
    for segment in log.segments.from_offset(log.log_start_offset) if known else ():
        for _, _, base, _ in segment.from_offset(log.log_start_offset, headers_only=True):
            return max(base, log.log_start_offset) < known[0][1]
    return False


def _read_epochs(log: Log) -> None:
    """Read the leader epochs from the headers of all batches.

    Raises:
        DamagedLog: an epoch decreases; the CRC does not cover it, so it is unknown which of the two is wrong.
    """
    history = log.epochs
    history.forget_from(0)
    for segment in log.segments.from_offset(log.log_start_offset):
        for position, _, base, _ in segment.from_offset(log.log_start_offset, headers_only=True):
            epoch = HEADER.unpack_from(segment.file.view(), position)[PARTITION_LEADER_EPOCH]
            if epoch < history.latest:
                reason = f"its batch is of leader epoch {epoch}, and one before it of {history.latest}"
                raise DamagedLog(segment.file.log_path, position, reason)
            if epoch > history.latest:
                history.begin(epoch, base)


def _tidy(files: Files, directory: str) -> dict[str, int]:
    """Remove the files of interrupted changes; return the names and sizes of the others."""
    sizes = files.list_sizes(directory)
    if RESTORATION in sizes:
        _forget_all(files, directory, sizes)
    for name in list(sizes):
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, NEW_SUFFIX)):
            files.remove(f"{directory}/{name}")
            del sizes[name]
    _finish_swap(files, directory, sizes)
    logs = {name[:20] for name in sizes if _is_numbered(name, LOG_SUFFIX)}
    for name in list(sizes):
        if name[:20] not in logs and any(_is_numbered(name, suffix) for suffix in SUFFIXES):
            files.remove(f"{directory}/{name}")
            del sizes[name]
    return sizes


def _forget_all(files: Files, directory: str, sizes: dict[str, int]) -> None:
    """Empty the directory of a log that was taking over what remote storage has: its leader has all that it had."""
    logger.warning("%s: was being restored from remote storage: emptied", directory)
    for name in [name for name in sizes if name not in (RESTORATION, PARTITION_METADATA)]:
        files.remove(f"{directory}/{name}")
        del sizes[name]
    files.sync_dir(directory)
    files.remove(f"{directory}/{RESTORATION}")
    files.sync_dir(directory)
    del sizes[RESTORATION]


def _finish_swap(files: Files, directory: str, sizes: dict[str, int]) -> None:
    """Finish a swap of the log cleaner: a `.log.swap` replaces the segments that it covers. Without one, no swap was interrupted."""
    swapped = {name[:20] for name in sizes if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    for base in sorted(swapped):
        last = _last_offset_in(files, f"{directory}/{base}{LOG_SUFFIX}{SWAP_SUFFIX}")
        for old in [n[:20] for n in sizes if _is_numbered(n, LOG_SUFFIX) and int(base) <= int(n[:20]) <= last]:
            # A file that already has its final name stays: its `.swap` is missing.
            for kind in SUFFIXES:
                if old != base or f"{base}{kind}{SWAP_SUFFIX}" in sizes:
                    files.remove(f"{directory}/{old}{kind}")
                    sizes.pop(old + kind, None)
    for name in [name for name in sizes if name.endswith(SWAP_SUFFIX)]:
        size = sizes.pop(name)
        if name[:20] in swapped:
            target = name[: -len(SWAP_SUFFIX)]
            files.rename(f"{directory}/{name}", f"{directory}/{target}")
            sizes[target] = size
        else:
            files.remove(f"{directory}/{name}")


def _last_offset_in(files: Files, path: str) -> int:
    """Return the last offset in a file that compaction has finished, and so has flushed.

    Raises:
        DamagedLog, StorageFailure
    """
    mapped = files.map(path, 0, False)
    mapped.populate(0, mapped.size)
    last = base = int(path.rpartition("/")[2][:20])
    for batch in walk(mapped.buffer, 0, mapped.size, path, base, base + RELATIVE_OFFSET_MAX):
        last = batch[3]
    mapped.close()
    return last


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == 20 + len(suffix) and name[:20].isdigit()


def _numbers(names: Iterable[str], suffix: str) -> list[int]:
    """Return the offsets that files of this kind have in their names, in order."""
    return sorted(int(name[:20]) for name in names if _is_numbered(name, suffix))
