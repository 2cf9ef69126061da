"""Segments wait for their topic's table: retention and compaction leave what it does not have yet (`ottla.table.retention.hold`).

A leader knows from the process beside it how far the table is (`Log.table_offset`). A follower does not, and leaves everything above its log
start offset, which follows the leader's. Both wait for ottla.table.hold.ms.max at most: a table whose store is gone must not fill the disk.
"""

from __future__ import annotations

from ottla.storage.log.log import Log
from ottla.storage.segment.segment import Segment


def waits_for_table(log: Log, segment: Segment, end: int, since_ms: int, now_ms: int) -> bool:
    """Return whether the segment, whose records are below `end`, is to stay for the table's sake.

    The time that it waits begins at `since_ms`, when it would otherwise go, and not before its file was last written: records may have
    old timestamps.
    """
    config = log.config
    if config.ottla_table_format == "none" or not config.ottla_table_retention_hold:
        return False
    if end <= max(log.log_start_offset, log.table_offset or 0):
        return False
    since_ms = max(since_ms, log.files.modified_ms(segment.file.log_path))
    return now_ms - since_ms < config.ottla_table_hold_ms_max
