"""Opening of a node's logs at its start, which says from time to time how far it is: recovery after a crash may take minutes.

It runs on a worker. The partitions are counted when their configuration is asked for, which is once for each, before it is opened.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from ottla.server.clock import Clock
from ottla.storage.directories.logs import ConfigFor, Logs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.partition_dir import partition_of
from ottla.storage.log_config import LogConfig

log = logging.getLogger("ottla.node")

#: Between two lines of one start.
EVERY_MS = 5_000


def load_logs(logs: Logs, config_for: ConfigFor, clock: Clock, now_ms: int) -> None:
    """Open all logs; a start that takes longer than `EVERY_MS` has a line for each such time, with rate and remaining time."""
    total, opened = _partitions(logs), 0
    began_ms = said_ms = clock.mono_ms()

    def counted(topic: str, topic_id: bytes) -> LogConfig:
        nonlocal opened, said_ms
        now = clock.mono_ms()
        if now - said_ms >= EVERY_MS:
            said_ms = now
            per_s = opened * 1000 / (now - began_ms)
            left_s = (total - opened) / per_s if per_s else 0.0
            log.info("Loading logs: %d of %d, %.1f a second, about %.0f s left", opened, total, per_s, left_s)
        opened += 1
        return config_for(topic, topic_id)

    logs.open_all(counted, now_ms)


def _partitions(logs: Logs) -> int:
    """Count the folders of partitions; a directory that fails is found by the opening."""
    count = 0
    for directory in logs.directories:
        if directory.online:
            with suppress(StorageFailure, OSError):
                count += sum(partition_of(name) is not None for name in logs.files.list_dir(directory.path))
    return count
