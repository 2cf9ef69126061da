"""Stories: the last decisions about a group, a partition or a transactional id, which each broker remembers of its own (`/story`).

Kafka has no API for them: the brokers' admin listeners are asked, and what they answer is put together by time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from ottla.client.admin_listeners import page_of
from ottla.client.errors import ClusterError, Failure, Kind
from ottla.server.story import StoryLine

TIMEOUT_S = 10.0


class StoryEntry(NamedTuple):
    """One decision at one node. Times are wall-clock time of the node."""

    node: int
    line: StoryLine

    @property
    def asker(self) -> str | None:
        """The client whose request it was."""
        return f"{self.line.client_id} {self.line.host}".strip() or None

    @property
    def decision(self) -> str:
        return f"{self.line.text} ({self.line.times} times)" if self.line.times > 1 else self.line.text


class Story(NamedTuple):
    """The entries of all nodes by time, and why a node has given none."""

    entries: list[StoryEntry]
    failures: dict[int, Failure]


async def story_of_group(listeners: Mapping[int, str], group: str) -> Story:
    """Ask the admin listeners, which are the addresses by node."""
    return await _story(listeners, {"group": group})


async def story_of_transaction(listeners: Mapping[int, str], transactional_id: str) -> Story:
    return await _story(listeners, {"transactional_id": transactional_id})


async def story_of_partition(listeners: Mapping[int, str], topic: str, partition: int) -> Story:
    return await _story(listeners, {"topic": topic, "partition": str(partition)})


async def _story(listeners: Mapping[int, str], asked: Mapping[str, str]) -> Story:
    page = f"/story?{urlencode(asked)}"
    found = await asyncio.gather(*(_ask(address, page) for address in listeners.values()))
    entries: list[StoryEntry] = []
    failures = {}
    for node, answer in zip(listeners, found, strict=True):
        if isinstance(answer, Failure):
            failures[node] = answer
        else:
            entries += answer
    return Story(sorted(entries, key=lambda entry: entry.line.time_ms), failures)


async def _ask(address: str, page: str) -> list[StoryEntry] | Failure:
    try:
        text = await page_of(address, page, TIMEOUT_S)
        return [_entry(line) for line in text.splitlines()]
    except Failure as fault:
        return fault
    except (ValueError, TypeError, RecursionError):
        return ClusterError(f"{address} answers with no story", "an older node has none", Kind.WRONG)


def _entry(text: str) -> StoryEntry:
    """Return the entry of a line. Raises ValueError or TypeError if it is none."""
    fields = json.loads(text)
    try:
        time_ms, first_ms, times = (int(fields[name]) for name in StoryLine._fields[:3])
        line = StoryLine(time_ms, first_ms, times, *(str(fields[name]) for name in StoryLine._fields[3:]))
        return StoryEntry(int(fields["node"]), line)
    except KeyError as missing:
        raise ValueError(f"no field {missing}") from None
