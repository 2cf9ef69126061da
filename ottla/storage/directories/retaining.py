"""Retention of all logs of one log directory, in turns of the event loop and with system calls on threads of its disk."""

from __future__ import annotations

import logging
from functools import partial

from ottla.protocol.work import DiskJob, Turn, Work
from ottla.storage.directories.log_dirs import LogDir
from ottla.storage.directories.logs import Logs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.retention import SEGMENTS_AT_ONCE, begin_retention

logger = logging.getLogger(__name__)

#: What a look at a log costs in a turn, and a segment that leaves: 10 us and 100 us, in records of a microsecond each.
LOOKED_AT = 10
GONE = 100


def retaining(logs: Logs, directory: LogDir, now_ms: int) -> Work[list[Log]]:
    """Returns the logs from which segments have gone. A log that fails keeps its segments; the others go on, or the disk would fill up."""
    turn = Turn()
    changed: list[Log] = []
    for log in logs.open.in_directory(directory):
        # A future log follows the start of the log that it is to replace.
        if log.closed or log.failure is not None or logs.open.future(log.topic_id, log.partition) is log:
            continue
        if turn.spend(LOOKED_AT):
            yield None
        try:
            if (yield from _retain(log, now_ms, turn)):
                changed.append(log)
        except StorageFailure as failure:
            logger.warning("retention of %s: %s", log, failure)
        except Exception:  # a mistake of ours in one log must not keep the others from making room
            logger.exception("retention of %s", log)
    if changed:
        # One sync for all logs: removed segments must not come back after a crash.
        yield DiskJob(directory.path, partial(logs.checkpoints.write_log_starts, directory))
    return changed


def _retain(log: Log, now_ms: int, turn: Turn) -> Work[int]:
    count, disk_job_done = 0, False
    while (job := begin_retention(log, now_ms, disk_job_done=disk_job_done)) is not None:
        if isinstance(job, DiskJob):
            yield job
            disk_job_done = True
            continue
        yield DiskJob(log.partition_dir.log_dir, job.run)
        job.end()
        count += job.segments
        if job.segments < SEGMENTS_AT_ONCE:
            break
        if turn.spend(GONE * job.segments):
            yield None
    return count
