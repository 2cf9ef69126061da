"""The records that the generator sent, one JSON line each with its acknowledgement, and the results expected of them.

Two functions use files. A record without an acknowledgement (`acknowledged` false) may or may not be in the topic: the results
may have it, but need not.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

from ottla.pipeline.spans import Span, merged


class Sent(NamedTuple):
    """One record: the kind that was intended, and its place in Kafka."""

    kind: str  # good, duplicate, late, or the reason (events.Reason) for which it must be rejected
    event_id: str
    event_time_ms: int
    user: str
    page: str
    duration_ms: int
    topic: str
    partition: int = -1
    offset: int = -1
    acknowledged: bool = False


#: The kinds whose events belong in silver, each event_id once.
GOOD = frozenset({"good", "duplicate", "late"})


def write(file: IO[str], sent: Sent) -> None:
    file.write(json.dumps(sent) + "\n")


def read(path: str | Path) -> Iterator[Sent]:
    with open(path) as file:
        for line in file:
            if not line.endswith("\n"):
                return  # the generator was killed within a line: the record was acknowledged to no one
            yield Sent(*json.loads(line))


class WindowRow(NamedTuple):
    views: int
    duration_ms: int


@dataclass
class Expected:
    """The expected contents of each stage. Positions are (topic, partition, offset)."""

    bronze: set[tuple[str, int, int]] = field(default_factory=set)
    event_ids: set[str] = field(default_factory=set)
    dead: dict[tuple[str, int, int], str] = field(default_factory=dict)
    windows: dict[tuple[int, str], WindowRow] = field(default_factory=dict)
    sessions: dict[tuple[str, int], Span] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    uncertain_ids: set[str] = field(default_factory=set)
    uncertain: int = 0


def expected(
    records: Iterable[Sent], *, window_ms: int, gap_ms: int, seen: frozenset[str] | set[str] = frozenset()
) -> Expected:
    """Return the expected results.

    `seen` are ids in silver: they decide which of the unacknowledged events have to be counted in gold.
    """
    found = Expected()
    events: dict[str, Sent] = {}
    for sent in records:
        if not sent.acknowledged:
            found.uncertain += 1
            found.uncertain_ids.add(sent.event_id)
            if sent.kind in GOOD and sent.event_id in seen:
                events.setdefault(sent.event_id, sent)
            continue
        found.kinds[sent.kind] += 1
        position = (sent.topic, sent.partition, sent.offset)
        assert position not in found.bronze, f"Kafka gave two records the position {position}"
        found.bronze.add(position)
        if sent.kind in GOOD:
            events[sent.event_id] = sent
        else:
            found.dead[position] = sent.kind
    found.event_ids = set(events)
    found.windows = windows(events.values(), window_ms)
    found.sessions = sessions(events.values(), gap_ms)
    return found


def windows(events: Iterable[Sent], window_ms: int) -> dict[tuple[int, str], WindowRow]:
    views: Counter[tuple[int, str]] = Counter()
    spent: Counter[tuple[int, str]] = Counter()
    for event in events:
        key = (event.event_time_ms // window_ms * window_ms, event.page)
        views[key] += 1
        spent[key] += event.duration_ms
    return {key: WindowRow(views[key], spent[key]) for key in views}


def sessions(events: Iterable[Sent], gap_ms: int) -> dict[tuple[str, int], Span]:
    times: defaultdict[str, list[int]] = defaultdict(list)
    for event in events:
        times[event.user].append(event.event_time_ms)
    return {(user, span.start_ms): span for user in times for span in merged((), times[user], gap_ms).spans}
