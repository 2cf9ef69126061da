"""Computes a large target on a worker thread, as Kafka 4.4 does with any (group.consumer.assignor.offload.enable).

A small one takes less time than the way to a thread and back, and its member has it in the answer to its own heartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.server.service import Spawn
from ottla.server.workers import Workers

log = logging.getLogger(__name__)

#: Returns the records of a target. It reads nothing that changes while it runs.
Compute: TypeAlias = Callable[[], Sequence[CoordinatorRecord]]
#: Called with the records; with None if the computation failed, which was logged.
OnComputed: TypeAlias = Callable[[Sequence[CoordinatorRecord] | None], None]


class TargetWorker:
    """Computes targets on a worker: `worker(compute, found)` calls `found` on the loop, later."""

    def __init__(self, workers: Workers, spawn: Spawn) -> None:
        self._workers = workers
        self._spawn = spawn
        # Two would not be done sooner, because Python runs one of them at a time.
        self._one = asyncio.Semaphore(1)

    def __call__(self, compute: Compute, found: OnComputed) -> None:
        async def run() -> None:
            records = None
            try:
                async with self._one:
                    records = await self._workers.run(compute)
            except Exception:
                # Any error, because `found` has to be called: until then the group gets no other target.
                log.exception("Could not compute the target of a group")
            found(records)

        self._spawn(run(), "target of a group")
