"""Opening a log: after a clean stop nothing is read but the end of the active segment; after a crash, what may be torn.

What a crash can leave, and what becomes of it:

    zeros behind the last batch          allocated ahead; the log ends where they begin
    a batch half written                 the log ends before it
    indexes behind the log, or damaged   made again from the log
    a producer snapshot missing          an older one is taken and the batches since are read
    epochs or indexes not written yet    made from the batches, which name their leader epoch
    a marker that cannot be read         ends no transaction (storage.replay)
    files marked .deleted .cleaned .tmp  removed;  .swap: the swap of a compaction is finished

Everything below the recovery point was flushed: a torn tail can only lie above it. Every batch above is checked (size, magic,
offsets in order, CRC), and the log ends before the first that fails. Where it would end below the recovery point, or where a
whole message of an old format lies, the medium or a human has changed the file: the partition is not opened, and nothing of it
is changed (`DamagedLog`). What is below and was not met here is checked when it is read (`storage.cold`).
"""

from __future__ import annotations

import logging
import zlib
from contextlib import suppress
from typing import NamedTuple

from ottla.protocol.records.batch import (
    ATTRIBUTES_AT,
    BATCH_LENGTH_MIN,
    CRC_AT,
    HEADER,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_AT,
    PARTITION_LEADER_EPOCH,
)
from ottla.protocol.records.crc import crc32c
from ottla.storage import epochs, producer_snapshot, replay, snapshot_files
from ottla.storage.config import LogConfig
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.errors import CorruptFile
from ottla.storage.files import Files
from ottla.storage.index import RELATIVE_OFFSET_MAX
from ottla.storage.log import Log
from ottla.storage.mappings import Mappings
from ottla.storage.partition_dir import TRUNCATION, rewrite_topic_id
from ottla.storage.producers import ProducerStates
from ottla.storage.segment import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    Segment,
)
from ottla.storage.segments import Segments
from ottla.storage.walk import DamagedLog, walk

logger = logging.getLogger(__name__)

NEW_SUFFIX = ".tmp"
ZERO_BYTES = 1 << 16
CHECKED_BYTES = 1 << 20
OFFSET_MAX = 2**63 - 1
# Message formats v0 and v1 have 26 and 34 bytes before key and value.
OLD_MAGICS, OLD_MESSAGE_BYTES_MIN = (0, 1), 26
OLD_FORMAT_REMEDY = "let an Apache Kafka serve this directory, and copy the topic to a new one with its clients"
ZEROS = bytes(ZERO_BYTES)


def open_log(
    files: Files,
    mappings: Mappings,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    clean: bool,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    now_ms: int = 0,
    jitter: float = 0.0,
) -> Log:
    """Opens the log in `directory`, or starts an empty one there.

    Raises:
        StorageFailure: the directory cannot be read or written.
        DamagedLog, CorruptFile: this partition cannot be opened, and nothing of it that could be lost was changed.
    """
    files.make_dirs(directory)
    sizes = _tidy(files, directory)
    bases = sorted(int(name[: -len(LOG_SUFFIX)]) for name in sizes if _is_numbered(name, LOG_SUFFIX))
    snapshots = sorted(
        int(name[: -len(producer_snapshot.SUFFIX)]) for name in sizes if _is_numbered(name, producer_snapshot.SUFFIX)
    )
    history = LeaderEpochs(files, f"{directory}/{epochs.FILE}")

    def segment(base: int, size: int, active: bool) -> Segment:
        return Segment(files, mappings, directory, base, config, size=size, active=active, now_ms=now_ms)

    segments = [segment(base, sizes[f"{base:020d}{LOG_SUFFIX}"], base == bases[-1]) for base in bases]
    if not segments:
        segments = [segment(log_start_offset, 0, True)]
        segments[0].create_file()
    epochs_in_file = _load_epochs(history)
    if not clean:
        history.forget_from(recovery_point)
    segments, end_offset = _find_end(files, directory, segments, history, clean, recovery_point)
    start_offset = max(log_start_offset, segments[0].base_offset)
    log = Log(
        files,
        mappings,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=Segments(segments),
        epochs=history,
        producers=ProducerStates(),
        log_start_offset=min(start_offset, end_offset),
        log_end_offset=end_offset,
        recovery_point=end_offset if clean else min(recovery_point, end_offset),
        jitter=jitter,
    )
    log.snapshots = snapshots
    if not clean and recovery_point == 0 < end_offset:
        rewrite_topic_id(files, directory)  # a recovery point tells that its sync did not fail
    if files.exists(f"{directory}/{TRUNCATION}"):
        log.segments.active.settle_tail()
        files.sync_dir(directory)
        files.remove(f"{directory}/{TRUNCATION}")
    if start_offset > end_offset:
        # The log lost more than its start allows (its files were removed): it can only go on empty, from there.
        logger.warning("%s: ends at %d, before its start %d: emptied", directory, end_offset, start_offset)
        log.truncate_fully_and_start_at(start_offset)
    _settle(log, clean, epochs_in_file)
    log.segments.active.unmap()  # most logs of a node are idle: the next use maps it again
    return log


def new_log(
    files: Files,
    mappings: Mappings,
    directory: str,
    topic: str,
    partition: int,
    topic_id: bytes,
    config: LogConfig,
    *,
    now_ms: int = 0,
    jitter: float = 0.0,
) -> Log:
    """A log to which nothing was written yet. It gets its directory and files with the first write.

    A topic of 1,000 partitions is some 10,000 system calls on every replica, and all of them on the one thread that also
    answers clients: so each partition pays its own when it is used. After a crash the metadata says that it is there.
    """
    segment = Segment(files, mappings, directory, 0, config, size=0, active=True, now_ms=now_ms)
    segment.indexes.clear()
    log = Log(
        files,
        mappings,
        directory,
        topic,
        partition,
        topic_id,
        config,
        segments=Segments([segment]),
        epochs=LeaderEpochs(files, f"{directory}/{epochs.FILE}", stored=False),
        producers=ProducerStates(),
        log_start_offset=0,
        log_end_offset=0,
        recovery_point=0,
        jitter=jitter,
    )
    log.has_files = False
    return log


def _settle(log: Log, clean: bool, epochs_in_file: list[tuple[int, int]]) -> None:
    """Brings epochs, snapshots, transaction indexes and producers in line with the batches that are there."""
    if not epochs_in_file or (not clean and _begins_before_epochs(log)):
        _read_epochs(log)
    if clean:
        log.epochs.truncate_from_end(log.log_end_offset + 1)  # of a log that ended in a gap
    if not clean or not epochs_in_file:
        log.epochs.truncate_from_end(log.log_end_offset)
        log.epochs.truncate_from_start(log.log_start_offset)
        if log.epochs.entries != epochs_in_file or log.log_end_offset > log.recovery_point:
            log.epochs.store()
    if not clean:
        # What the recovery point does not vouch for may be newer than the transaction index next to it.
        snapshot_files.forget(log, lambda offset: offset > log.recovery_point)
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
            segment.txn_index.truncate_to(
                log.files, max(log.recovery_point, segment.base_offset)
            )  # made again just below
    replay.rebuild_producers(log)


def _is_numbered(name: str, suffix: str) -> bool:
    return name.endswith(suffix) and len(name) == 20 + len(suffix) and name[:20].isdigit()


def _tidy(files: Files, directory: str) -> dict[str, int]:
    """Removes what an interrupted change left behind; the names and sizes of what stays."""
    sizes = files.list_sizes(directory)
    for name in list(sizes):
        if name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, NEW_SUFFIX)):
            files.remove(f"{directory}/{name}")
            del sizes[name]
    _finish_swap(files, directory, sizes)
    logs = {name[:20] for name in sizes if _is_numbered(name, LOG_SUFFIX)}
    for name in list(sizes):
        orphan = any(_is_numbered(name, suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX))
        if orphan and name[:20] not in logs:
            files.remove(f"{directory}/{name}")
            del sizes[name]
    return sizes


def _finish_swap(files: Files, directory: str, sizes: dict[str, int]) -> None:
    """A `.log.swap` replaces the segments it covers. Without it the swap had not begun, or is done but for its name."""
    swapped = {name[:20] for name in sizes if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)}
    for base in sorted(swapped):
        last = _last_offset_in(files, f"{directory}/{base}{LOG_SUFFIX}{SWAP_SUFFIX}")
        for old in [n[:20] for n in sizes if _is_numbered(n, LOG_SUFFIX) and int(base) <= int(n[:20]) <= last]:
            # What was renamed to its own name already stays: its source is gone.
            for kind in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX):
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
    """The last offset in a file that compaction has finished: it was flushed before it got its name.

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


def _load_epochs(history: LeaderEpochs) -> list[tuple[int, int]]:
    """What the file says; nothing where it cannot be read."""
    try:
        history.load()
    except CorruptFile as error:
        logger.warning("%s: read again from the batches", error)
    return history.entries


def _find_end(
    files: Files, directory: str, segments: list[Segment], history: LeaderEpochs, clean: bool, recovery_point: int
) -> tuple[list[Segment], int]:
    """The segments that stay, and the log end offset."""
    active, vouched = segments[-1], recovery_point
    if clean and (end := _clean_end(active)) is not None:
        if active.size and 0 < vouched != end:
            # A clean stop has flushed all there was: the offset of the last batches, which no CRC covers, is another one.
            # It may as well be a smaller one, in a gap or at the batch of the last index entry.
            raise DamagedLog(active.log_path, 0, f"its batches lead to offset {end}, and the log ended at {vouched}")
        return segments, end
    if clean:
        recovery_point = active.base_offset
    # The segment behind which the recovery point lies: it was trimmed when it was sealed, after its last flush.
    first = max((i for i, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
    expected = segments[first].base_offset
    empty_behind: list[int | None] = [None] * first  # of a segment without batches behind a gap, where that begins
    if first + 1 < len(segments):
        # A roll syncs the directory before it trims, so that a file that has lost its end is too short for what follows. The
        # process may have been killed before that sync: without it a lost end would look like a gap.
        files.sync_dir(directory)
    for i, segment in enumerate(segments[first:], first):
        following = segments[i + 1].base_offset if i + 1 < len(segments) else None
        valid, before = check_segment(segment, history, recovery_point, clean), expected
        expected = valid.offset
        lost = vouched > 0 if clean else valid.offset < vouched and not valid.zeros
        if valid.position < segment.size and lost:
            # No crash takes back what was flushed. To cut it off would lose it here, and perhaps everywhere: this replica
            # counts as in sync. (Zeros alone are no evidence after a crash: a log may end in a gap.)
            reason = f"the batches end there, at offset {valid.offset}, and those up to {vouched} were on the disk once"
            raise DamagedLog(segment.log_path, valid.position, reason)
        # Zeros may follow what a crash kept from being trimmed, if no batch is missing before the next segment.
        whole = valid.position == segment.size or (valid.zeros and following == expected)
        damaged = following is not None and (not whole or following < expected)
        empty_behind.append(before if valid.position == 0 and segment.base_offset > before else None)
        if empty_behind[i] is not None and (damaged or following is None):
            # No batch is behind the gap, so it is none: the segment was begun, and what was before it is lost.
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
                "%s: damaged; the %d segments behind it are removed", segment.log_path, len(segments) - 1 - i
            )
            # Before the damage is mended, from the end: a crash in between finds it again, and no gap.
            _remove(files, directory, segments[i + 1 :])
            segments = segments[: i + 1]
        if valid.position < segment.size and not valid.zeros:
            logger.warning("Corruption found in segment %s, truncating to offset %d", segment.log_path, valid.offset)
        _mend(segment, valid)
        if damaged:
            segment.reopen()
            break
    return segments, expected


def _remove(files: Files, directory: str, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.unmap()
        for name in segment.file_names():
            files.remove(name)
    files.sync_dir(directory)


def _mend(segment: Segment, valid: Valid) -> None:
    if not valid.zeros:
        logger.warning(
            "%s: cut at byte %d of %d, offset %d", segment.log_path, valid.position, segment.size, valid.offset
        )
    segment.cut_back(valid.position, valid.offset, valid.zeros)
    segment.rewrite(valid.checked_from)
    if not segment.active:
        segment.active = True
        segment.seal(indexes_must_be_saved=False)
    if valid.remade and not (segment.indexes.loaded and not segment.active):
        segment.sync_indexes()


def _clean_end(active: Segment) -> int | None:
    """The log end offset, from the last batches of the active segment; None if they are not as a clean stop leaves them."""
    try:
        active.indexes.read(active.size)
    except CorruptFile as error:
        logger.warning("%s", error)
        return None
    _, position = active.indexes.offsets.floor(2**62)
    active.reach(position, active.size)
    end, offset = valid_until(active, position)
    if end != active.size:
        _refuse_old_format(active.log_path, active.view(), end, active.size)
        return None
    return offset


def _refuse_old_format(path: str, buffer: memoryview, position: int, end: int) -> None:
    """A whole message of the formats before 0.11 is no torn batch: nothing of the log may be cut off.

    offset i64, size i32, crc u32 (CRC-32 of what follows), magic i8 (0, 1), ...

    Raises:
        DamagedLog
    """
    if end - position < OLD_MESSAGE_BYTES_MIN or buffer[position + MAGIC_AT] not in OLD_MAGICS:
        return
    size = int.from_bytes(buffer[position + 8 : position + 12], "big", signed=True)
    following = position + LOG_OVERHEAD_BYTES + size
    if not position + OLD_MESSAGE_BYTES_MIN <= following <= end:
        return
    if zlib.crc32(buffer[position + 16 : following]) == int.from_bytes(buffer[position + 12 : position + 16], "big"):
        old = f"a message of format v{buffer[position + MAGIC_AT]} begins there, from before Kafka 0.11"
        raise DamagedLog(path, position, old, remedy=OLD_FORMAT_REMEDY)


def valid_until(segment: Segment, position: int, one: bool = False) -> tuple[int, int]:
    """Where the run of valid batches (or just the first) from `position` ends, and the offset that would follow."""
    buffer, expected = segment.view(), segment.base_offset
    with suppress(DamagedLog):
        for at, following, _, last in walk(buffer, position, segment.size, segment.log_path, expected, OFFSET_MAX):
            if crc32c(buffer[at + ATTRIBUTES_AT : following]) != int.from_bytes(
                buffer[at + CRC_AT : at + ATTRIBUTES_AT]
            ):
                break
            position, expected = following, last + 1
            if one:
                break
    return position, expected


class Valid(NamedTuple):
    """How far the batches of a segment are valid."""

    checked_from: int  # byte where checking began
    remade: bool  # the indexes were of no use
    position: int  # byte behind the last valid batch
    offset: int  # that follows it
    zeros: bool  # nothing but zeros lies behind


def check_segment(segment: Segment, history: LeaderEpochs, recovery_point: int, clean: bool) -> Valid:
    """Checks every batch above the recovery point, and completes indexes and epochs. Cuts nothing off.

    It does not use `walk`: a header that cannot be right is the end of the log here and no damage, and whether an offset that
    goes back is wrong, or the one before it, is decided after the CRC.
    """
    start, expected, remade = _resume(segment, recovery_point)
    buffer, end, position = segment.view(), segment.size, start
    unpack = HEADER.unpack_from
    offset_max = segment.base_offset + RELATIVE_OFFSET_MAX
    reached = start
    # Of a batch that leapt ahead: where it lies, what was expected there, and what then follows if its offset is wrong.
    leap: tuple[int, int, int] | None = None
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > reached:
            reached = segment.reach(position, min(position + CHECKED_BYTES, end))
        base, length, epoch, magic, crc, _, delta, _, max_timestamp, *_ = unpack(buffer, position)
        following = position + length + LOG_OVERHEAD_BYTES
        last = base + delta
        if magic != MAGIC or length < BATCH_LENGTH_MIN or following > end or delta < 0 or last > offset_max:
            _refuse_old_format(segment.log_path, buffer, position, end)
            break
        if following > reached:
            reached = segment.reach(position, min(following + CHECKED_BYTES, end))
        # No CRC covers the leader epoch either. It never falls; after a crash the history may be from before a truncation.
        known = history.epoch_of(base)
        if epoch < known or (clean and epoch != known >= 0):
            break
        if crc32c(buffer[position + ATTRIBUTES_AT : following]) != crc:
            break
        if base != expected:
            if base < expected:
                # No CRC covers the base offset. If this batch continues from before the leap, it was the leap that is wrong.
                # Otherwise it is this one, torn: a gap of compaction is no fault, and what lies behind it was acknowledged.
                if leap is not None and base == leap[2]:
                    position, expected = leap[:2]
                break
            leap = (position, expected, expected + delta + 1)
        else:
            leap = None
        if epoch > known:
            history.begin(epoch, base)
        expected = last + 1
        segment.indexes.add(position, following - position, last, max_timestamp)
        position = following
    segment.cold.vouch(start, position)
    segment.reach(position, end)
    return Valid(start, remade, position, expected, _only_zeros(buffer, position, end))


def _only_zeros(buffer: memoryview, start: int, end: int) -> bool:
    """All of it: what lies behind a hole is as much to be cut off as what lies in front."""
    for position in range(start, end, ZERO_BYTES):
        piece = buffer[position : min(position + ZERO_BYTES, end)]
        if piece != ZEROS[: len(piece)]:
            return False
    return True


def _resume(segment: Segment, recovery_point: int) -> tuple[int, int, bool]:
    """Where checking begins, and the least offset there: the last index entry below the recovery point, or the start.

    And whether an index that the recovery point vouched for is not there.
    """
    vouched = recovery_point > segment.base_offset
    if vouched and _read_indexes(segment):
        # The last batch below the recovery point that the index knows. If the entry does not fit the log, none is trusted:
        # the checkpoint may be from before a truncation.
        _, position = segment.indexes.offsets.floor(recovery_point - 1)
        segment.indexes.resume_at(position)
        if position == 0:
            return 0, segment.base_offset, False
        segment.reach(position, segment.size)
        end, expected = valid_until(segment, position, one=True)
        if end > position and expected - 1 == segment.indexes.offsets.last_offset:
            return position, segment.offset_at(position), False
        logger.warning("%s: does not fit the log, made again", segment.indexes.offsets.path)
    segment.indexes.clear()
    return 0, segment.base_offset, vouched


def _read_indexes(segment: Segment) -> bool:
    try:
        segment.indexes.read(segment.size)
    except CorruptFile as error:
        logger.warning("%s: made again from the log", error)
        return False
    return True


def _begins_before_epochs(log: Log) -> bool:
    """Records were deleted, and the crash undid it: of these records the history knows nothing any more."""
    known = log.epochs.entries
    for segment in log.segments.from_offset(log.log_start_offset) if known else ():
        for _, _, base, _ in segment.from_offset(log.log_start_offset, headers_only=True):
            return max(base, log.log_start_offset) < known[0][1]
    return False


def _read_epochs(log: Log) -> None:
    """Leader epochs from the headers of all batches.

    Raises:
        DamagedLog: an epoch falls, of which no CRC says which of the two is wrong.
    """
    history = log.epochs
    history.entries, history.latest = [], -1
    for segment in log.segments.from_offset(log.log_start_offset):
        for position, _, base, _ in segment.from_offset(log.log_start_offset, headers_only=True):
            epoch = HEADER.unpack_from(segment.view(), position)[PARTITION_LEADER_EPOCH]
            if epoch < history.latest:
                reason = f"its batch is of leader epoch {epoch}, and one before it of {history.latest}"
                raise DamagedLog(segment.log_path, position, reason)
            if epoch > history.latest:
                history.begin(epoch, base)
