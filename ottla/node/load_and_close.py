"""Opening the logs of a node at its start, and closing them at its clean stop, on workers, while the loop goes on.

A start says from time to time how far it is: recovery after a crash may take minutes. The partitions are counted when their configuration
is asked for, which is once for each, before it is opened.

A log that is closed spends most of the time waiting for its five to seven syncs. 500 partitions, closed one after the other on
the loop, held it for 15.7 s, longer than `docker stop` waits before it kills (10 s). File systems let syncs that wait at the
same time share a journal commit.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from ottla.server.clock import Clock
from ottla.server.workers import THREADS
from ottla.server.world import World
from ottla.storage.directories.logs import ConfigFor, Logs
from ottla.storage.errors import StorageFailure
from ottla.storage.log.log import Log
from ottla.storage.log.partition_dir import partition_of
from ottla.storage.log_config import LogConfig

#: The time between two lines in the log of one start.
EVERY_MS = 5_000
#: Logs per call: enough that handing work over costs nothing, few enough that the last threads end at about the same time.
LOGS_PER_CALL = 4


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
    """Count the folders of partitions. A failing directory is reported later, when its logs are opened."""
    count = 0
    for directory in logs.directories:
        if directory.online:
            with suppress(StorageFailure, OSError):
                count += sum(partition_of(name) is not None for name in logs.files.list_dir(directory.path))
    return count


log = logging.getLogger("ottla.node")


async def close_logs(world: World, logs: Logs, broker_epoch: int) -> None:
    """Flush and close all logs, which are no longer appended to or read. A directory with an unflushed log is not marked as clean."""
    began_ms = world.clock.mono_ms()
    waiting = logs.begin_close()
    count = len(waiting)

    async def close_waiting() -> None:
        while waiting:
            some: list[Log] = [waiting.pop() for _ in range(min(LOGS_PER_CALL, len(waiting)))]
            try:
                await world.workers.run(logs.close_some, some)
            except Exception:
                log.exception("Some of %s are not closed cleanly", some)  # `end_close` finds them open

    await asyncio.gather(*[world.spawn(close_waiting(), f"close logs {i}") for i in range(min(THREADS, count))])
    await world.workers.run(logs.end_close, broker_epoch)
    if count:
        log.info("Closed %d logs in %d ms", count, world.clock.mono_ms() - began_ms)
