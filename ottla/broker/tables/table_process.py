"""The process that works on tables, with a deadline for each call: one that hangs is killed, and the next call starts another.

What it has open can be made again from the store, so nothing is lost by that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from ottla.server.extras import lacking
from ottla.server.installation import install
from ottla.server.table_work import TableJob, TableReport
from ottla.server.worker_process import WorkerEnded, WorkerProcess, WorkFailed

log = logging.getLogger(__name__)

EXTRA = "tables"
#: Kinds of reasons to wait (`TableReport.kind`), besides those of the process itself.
LACKING, NO_ANSWER, ENDED = "extra", "no answer", "process"


class TableProcess:
    """Calls the object that `factory` makes in a process of its own."""

    def __init__(self, process: WorkerProcess, factory: Callable[[], object]) -> None:
        self._process = process
        self._factory = factory
        self._is_made = False

    async def work(self, job: TableJob, timeout_ms: int) -> TableReport:
        """Do a job. It raises nothing: what has failed is the report's reason to wait."""
        if (package := lacking(EXTRA)) is not None:
            return TableReport(kind=LACKING, waits=f"{package} is not installed here: {install(EXTRA)}")
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                report: TableReport = await self._call("work", job)
                return report
        except TimeoutError:
            await self.close()
            return TableReport(
                kind=NO_ANSWER, waits=f"no answer of store or catalog in {timeout_ms} ms: the process was ended"
            )
        except (WorkerEnded, WorkFailed, OSError, ImportError) as fault:
            await self.close()
            return TableReport(kind=ENDED, waits=str(fault))

    async def forget(self, topic_ids: list[str]) -> None:
        """Close what is open of these topics."""
        if self._is_made:
            try:
                await self._call("forget", topic_ids)
            except (WorkerEnded, WorkFailed, OSError):
                await self.close()

    async def close(self) -> None:
        self._is_made = False
        await self._process.close()

    async def _call(self, method: str, argument: object) -> Any:
        if not self._is_made:
            await self._process.make(self._factory)
            self._is_made = True
        return await self._process.call(method, argument)
