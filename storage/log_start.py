"""Changes of the log start offset: by DeleteRecords, by the leader's Fetch response on a follower, and by retention."""

from __future__ import annotations

import logging

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage import snapshot_files
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.log_files import delete_segments
from ottla.storage.log_state import LogState
from ottla.storage.retention import SegmentFacts, reasons, segments_to_delete
from ottla.storage.roll import roll
from ottla.storage.walk import DamagedLog

logger = logging.getLogger(__name__)


def advance_log_start_offset(log: LogState, offset: int) -> bool:
    if offset <= log.log_start_offset:
        return False
    if offset > log.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"the log cannot start at {offset}, above its high watermark {log.high_watermark}",
        )
    log.log_start_offset = offset
    logger.info("Incremented log start offset to %d in %s-%d", offset, log.topic, log.partition)
    _forget_epochs(log)
    return True


def delete_records(log: LogState, before_offset: int) -> int:
    log.check_usable()
    offset = log.high_watermark if before_offset == -1 else before_offset
    if offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete records before offset {offset}")
    advance_log_start_offset(log, offset)
    return log.log_start_offset


def apply_retention(log: LogState, now_ms: int) -> int:
    log.check_usable()
    if not log.has_files:
        return 0
    segments = list(log.segments)
    facts = [_facts(log, i) for i in range(len(segments))]
    count = segments_to_delete(
        facts,
        log.config,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )
    if not count:
        return 0
    whys = reasons(facts, count, log.config, log.log_start_offset, now_ms)
    try:
        if count == len(segments):
            try:
                roll(log, now_ms)
            except DiskFull:
                if count == 1:
                    raise
                count -= 1  # the earlier segments make room
        gone = segments[:count]
        log.segments.remove(gone)
        log.log_start_offset = max(log.log_start_offset, log.segments[0].base_offset)
        _forget_epochs(log)
        snapshot_files.forget(log, lambda taken: taken < log.segments[0].base_offset)
        delete_segments(log, gone)
        for segment, why in zip(gone, whys, strict=False):
            logger.info(
                "Deleting segment %d of %s-%d (%d bytes) due to %s",
                segment.base_offset,
                log.topic,
                log.partition,
                segment.size,
                why,
            )
        log.producers.remove_expired(now_ms, log.config.producer_id_expiration_ms)
    except StorageFailure as failure:
        log.fail(failure)
        raise
    return count


def _forget_epochs(log: LogState) -> None:
    try:
        log.epochs.truncate_from_start(log.log_start_offset)
    except DiskFull as failure:
        # Deletion must succeed on a full disk; epochs from before the log start that stay in the file do no harm.
        logger.warning("epochs of %s: %s", log, failure)
    except StorageFailure as failure:
        log.fail(failure)
        raise


def _facts(log: LogState, index: int) -> SegmentFacts:
    segment = log.segments[index]
    following = log.segments.next_base(index)
    try:
        timestamp = segment.largest_timestamp().timestamp
    except DamagedLog:
        timestamp = -1  # size and the file's modification time decide instead: damaged segments must not fill the disk
    if timestamp < 0 and (segment.size or following is None):
        timestamp = log.files.modified_ms(segment.log_path)
    # Otherwise compaction has emptied it. Its file is newer than all others and would prevent their removal.
    end = log.log_end_offset if following is None else following
    return SegmentFacts(segment.base_offset, end, segment.size, timestamp)
