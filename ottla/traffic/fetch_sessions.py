"""Fetch sessions (KIP-227) of a recording in a cluster where its partitions have other leaders.

A client has one session with the recorded broker, and names partitions in it only when they change. Here each broker that leads some of
them has a session of its own: its id and its epochs are its own, and a partition whose leader has changed is named again by new sessions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from ottla.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from ottla.traffic.routing import RoutedPart, Routes

INITIAL, FINAL = 0, -1
#: Sessions that are kept, oldest first to go: a client that comes back has a new one.
SESSIONS_MAX = 10_000

#: A topic's name and id, one of which is not set.
Named = tuple[str, bytes]


class ReplayedSession:
    """One recorded session: its partitions as they were last named, and the sessions that it has become."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[Named, int], FetchPartition] = {}
        #: The session's id at each node, and the epoch of the next request to it.
        self.own: dict[int, tuple[int, int]] = {}
        self._nodes: dict[tuple[Named, int], int] = {}

    async def parts(self, routes: Routes, body: Any, otherwise: int) -> list[RoutedPart]:
        """Return the requests that a request of the session becomes."""
        changed = self._take(body)
        for key in self.partitions:
            if key not in self._nodes:
                (name, topic_id), number = key
                node = await routes.leader(name or topic_id, number)
                self._nodes[key] = otherwise if node is None else node
        forgotten = self._forget(body)
        nodes = dict.fromkeys([*self._nodes.values(), *self.own]) or {otherwise: None}
        parts = []
        for node in nodes:
            session_id, epoch = self.own.get(node, (0, INITIAL))
            part = copy.copy(body)
            named = [key for key in (changed if session_id else self.partitions) if self._nodes.get(key) == node]
            part.topics = _topics(named, self.partitions)
            part.forgotten_topics_data = _forgotten(key for key, at in forgotten.items() if at == node and session_id)
            part.session_id = session_id
            part.session_epoch = FINAL if body.session_epoch == FINAL else epoch
            if len(nodes) > 1:
                part.max_wait_ms = 0  # one without records would keep those of the others waiting
            parts.append(RoutedPart(node, part))
        return parts

    def answered(self, part: RoutedPart, session_id: int) -> None:
        """Take the id that a broker has given: 0 if it has no session for it."""
        epoch = part.body.session_epoch
        if session_id == 0 or epoch == FINAL:
            self.own.pop(part.node, None)
        else:
            self.own[part.node] = (session_id, epoch % 0x7FFFFFFF + 1)

    def begin_again(self) -> None:
        """Name all partitions again, to those who lead them now."""
        self.own.clear()
        self._nodes.clear()

    def _take(self, body: Any) -> list[tuple[Named, int]]:
        changed = []
        for topic in body.topics:
            for partition in topic.partitions:
                key = ((topic.topic, topic.topic_id), partition.partition)
                self.partitions[key] = partition
                changed.append(key)
        return changed

    def _forget(self, body: Any) -> dict[tuple[Named, int], int]:
        forgotten = {}
        for topic in body.forgotten_topics_data:
            for number in topic.partitions:
                key = ((topic.topic, topic.topic_id), number)
                self.partitions.pop(key, None)
                if key in self._nodes:
                    forgotten[key] = self._nodes.pop(key)
        return forgotten


class ReplayedSessions:
    """The sessions of a recording, by their recorded ids."""

    def __init__(self) -> None:
        self._known: dict[int, ReplayedSession] = {}

    def of(self, session_id: int) -> ReplayedSession:
        """Return the session of a request; one that is not known has no partitions, and one without an id is new."""
        return self._known.get(session_id) or ReplayedSession()

    def learn(self, session_id: int, session: ReplayedSession) -> None:
        """Remember the session that a recorded response has given an id."""
        if session_id:
            if session_id not in self._known and len(self._known) >= SESSIONS_MAX:
                del self._known[next(iter(self._known))]
            self._known[session_id] = session


def _topics(keys: Iterable[tuple[Named, int]], partitions: dict[tuple[Named, int], FetchPartition]) -> list[FetchTopic]:
    found: dict[Named, FetchTopic] = {}
    for key in keys:
        (name, topic_id), _ = key
        found.setdefault(key[0], FetchTopic(name, topic_id, [])).partitions.append(partitions[key])
    return list(found.values())


def _forgotten(keys: Iterable[tuple[Named, int]]) -> list[ForgottenTopic]:
    found: dict[Named, ForgottenTopic] = {}
    for (name, topic_id), number in keys:
        found.setdefault((name, topic_id), ForgottenTopic(name, topic_id, [])).partitions.append(number)
    return list(found.values())
