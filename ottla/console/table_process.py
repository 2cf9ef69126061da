"""Topics' tables for the pages. Separate processes read them, because a store may hang, and files may crash a reader.

    question    {"location": ..., "topics": null}             one answer: the names of the topics with a table
    question    {"location": ..., "topics": [NAME ...]}       an answer for each: the table, null if there is none, or {"problem": ...}

The console's process imports no library of tables. Credentials of an object store are those of the environment.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NamedTuple

from ottla.client.failures import Failure
from ottla.registry.guarded_process import GuardedProcesses, ProcessEnded, serve
from ottla.tables.store import StoreFailure
from ottla.tables.table_location import TableLocation, open_store
from ottla.tables.table_look import SeenTable, TableCounts, TableLook

#: A table is read within this time and memory, or else shown without its numbers.
TABLE_S, MEMORY_BYTES_MAX = 5.0, 2 << 30
#: What was read is shown to all users for this long. At most this many topics are read, in the order of their names.
FRESH_S, TOPICS_MAX = 5.0, 200
#: After this many tables that crashed a process, the others are not read.
ENDED_MAX = 3
PROBLEM_CHARS_MAX = 500


class TableView(NamedTuple):
    """A table on a page: its numbers, or why they could not be read."""

    topic: str
    seen: SeenTable | None
    problem: str | None = None


class TablesAt(NamedTuple):
    """The tables at a location, and the number of topics there."""

    rows: list[TableView]
    topics: int


class TableBrowser:
    """Reads the tables of one location."""

    def __init__(self, location: str) -> None:
        self.location = location
        self._processes = GuardedProcesses("ottla.console.table_process", TABLE_S, MEMORY_BYTES_MAX)
        self._seen: TablesAt | None = None
        self._seen_s = 0.0

    async def tables(self) -> TablesAt:
        """Return the tables as they were read within the last seconds.

        Raises:
            Failure: the location cannot be listed.
        """
        if self._seen is None or time.monotonic() - self._seen_s > FRESH_S:
            self._seen, self._seen_s = await self._look(), time.monotonic()
        return self._seen

    async def close(self) -> None:
        await self._processes.close()

    async def _look(self) -> TablesAt:
        try:
            (found,) = [each async for each in self._answers(None)]
        except ProcessEnded as fault:
            raise Failure(f"{self.location}: {fault}") from fault
        if "problem" in found:
            raise Failure(f"{self.location}: {found['problem']}", "--tables of the console names where tables lie")
        topics = [str(name) for name in found["topics"]]
        rows: list[TableView] = []
        left, ended = topics[:TOPICS_MAX], 0
        while left:
            try:
                async for answer in self._answers(tuple(left)):
                    rows += _views(left.pop(0), answer)
            except ProcessEnded as fault:
                ended += 1
                rows.append(TableView(left.pop(0), None, str(fault)))
            if ended >= ENDED_MAX:
                rows += (TableView(topic, None, "not looked at: other tables took too long") for topic in left)
                break
        return TablesAt(rows, len(topics))

    async def _answers(self, topics: Sequence[str] | None) -> AsyncIterator[Any]:
        """Yield the answers to a question, one for each topic that it names. Raises ProcessEnded."""
        question = json.dumps({"location": self.location, "topics": topics}).encode()
        async with self._processes.taken() as process:
            await process.ask([question], TABLE_S)
            for _ in range(1 if topics is None else len(topics)):
                yield json.loads(await process.receive(TABLE_S))


def _views(topic: str, answer: dict[str, Any] | None) -> list[TableView]:
    """Return the row of a table, or None if there is no table yet."""
    if answer is None:
        return []
    if "problem" in answer:
        return [TableView(topic, None, str(answer["problem"]))]
    positions = {int(partition): next_ for partition, next_ in answer["positions"].items()}
    counts = TableCounts(*answer["counts"])
    return [TableView(topic, SeenTable(**(answer | {"positions": positions, "counts": counts})))]


# -- In a process of its own ---------------------------------------------------------------------------------------------


class TableAnswers:
    """Answer the questions in one of these processes."""

    def __call__(self, parts: list[bytes]) -> Iterator[bytes]:
        question: dict[str, Any] = json.loads(b"".join(parts))
        topics = question["topics"]
        try:
            look = TableLook(TableLocation(open_store(question["location"], {})), {})
            if topics is None:
                yield json.dumps({"topics": look.topics()}).encode()
                return
        except (StoreFailure, ImportError) as fault:
            yield from [_problem(fault)] * (1 if topics is None else len(topics))
            return
        for topic in topics:
            try:
                seen = look.topic(topic)
                yield json.dumps(None if seen is None else seen._asdict()).encode()
            except StoreFailure as fault:
                yield _problem(fault)


def _problem(fault: Exception) -> bytes:
    return json.dumps({"problem": str(fault)[:PROBLEM_CHARS_MAX]}).encode()


if __name__ == "__main__":
    serve(TableAnswers())
