"""The process that works on tables, with a deadline for each call: one that hangs is killed, and the next call starts another.

Its open tables can be read again from the store, so that killing it loses nothing. But its libraries are imported again, which
takes two seconds of CPU time at low priority: on a busy machine the imports alone exceeded a short deadline at each attempt,
and the table made no progress. So imports have a deadline of their own, and a topic that had no answer has twice the time at
its next attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

from ottla.server.extras import lacking
from ottla.server.installation import install
from ottla.server.table_work import TableJob, TableReport, TableSettings
from ottla.server.worker_process import WorkerEnded, WorkerProcess, WorkFailed

log = logging.getLogger(__name__)

EXTRA = "tables"
#: Kinds of reasons to wait (`TableReport.kind`), besides those of the process itself.
LACKING, NO_ANSWER, ENDED = "extra", "no answer", "process"
#: The deadline for the start of the process with the libraries of one format.
START_MS_MAX = 600_000
#: The configured deadline is doubled at most this many times for a topic without an answer.
DOUBLINGS_MAX = 3


class TableProcess:
    """Calls the object that `factory` makes in a process of its own."""

    def __init__(self, process: WorkerProcess, factory: Callable[[], object]) -> None:
        self._process = process
        self._factory = factory
        self._is_made = False
        #: The jobs by whose settings the process has imported its libraries.
        self._prepared: set[tuple[str, ...]] = set()
        #: The number of times that a topic has had no answer since its last one, by the topic's id.
        self._unanswered: Counter[str] = Counter()

    async def work(self, job: TableJob, timeout_ms: int) -> TableReport:
        """Do a job. It raises no error: a failure becomes the report's reason to wait."""
        if (package := lacking(EXTRA)) is not None:
            return TableReport(kind=LACKING, waits=f"{package} is not installed here: {install(EXTRA)}")
        deadline_ms = START_MS_MAX
        try:
            async with asyncio.timeout(deadline_ms / 1000):
                await self._prepare(job.settings)
            deadline_ms = timeout_ms << min(self._unanswered[job.topic_id], DOUBLINGS_MAX)
            async with asyncio.timeout(deadline_ms / 1000):
                report: TableReport = await self._call("work", job)
            del self._unanswered[job.topic_id]
            return report
        except TimeoutError:
            await self.close()
            self._unanswered[job.topic_id] += 1
            return TableReport(
                kind=NO_ANSWER, waits=f"no answer of store or catalog in {deadline_ms} ms: the process was ended"
            )
        except (WorkerEnded, WorkFailed, OSError, ImportError) as fault:
            await self.close()
            return TableReport(kind=ENDED, waits=str(fault))

    async def forget(self, topic_ids: list[str]) -> None:
        """Close the open files of these topics."""
        for topic_id in topic_ids:
            del self._unanswered[topic_id]
        if self._is_made:
            try:
                await self._call("forget", topic_ids)
            except (WorkerEnded, WorkFailed, OSError):
                await self.close()

    async def close(self) -> None:
        self._is_made = False
        self._prepared.clear()
        await self._process.close()

    async def _prepare(self, settings: TableSettings) -> None:
        wanted = (settings.format, settings.catalog, settings.key, settings.value)
        if wanted not in self._prepared:
            await self._call("prepare", settings)
            self._prepared.add(wanted)

    async def _call(self, method: str, argument: object) -> Any:
        if not self._is_made:
            await self._process.make(self._factory)
            self._is_made = True
        return await self._process.call(method, argument)
