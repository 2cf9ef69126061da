"""Share sessions: which partitions a member of a share group fetches from this broker, and its place in the sequence of requests.

    epoch 0      a new session with the partitions of the request; an older one of the member is forgotten
    n            the session is at n: the request changes its partitions, and the next request has n + 1
    -1           the last request of the session

A session ends with its connection, too (KIP-932). It has no id: a group has one session of each member at each broker.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import NamedTuple, Protocol

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.slotted import entity
from ottla.server.client_bounds import shown

log = logging.getLogger(__name__)

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EPOCH_MAX = 2**31 - 1
#: The limit of partitions in a session, and in a request. 10,000 take 40 ms of the event loop.
PARTITIONS_MAX = 10_000
#: With this many groups on one connection, those without a session are forgotten before the connection closes. A client has one
#: or a few.
GROUPS_MAX = 100


class SessionKey(NamedTuple):
    group_id: str
    member_id: str


class TopicIdPartition(NamedTuple):
    topic_id: bytes
    partition: int


class SessionConnection(Protocol):
    """The part of a connection that sessions need."""

    @property
    def id(self) -> str: ...
    def on_close(self, callback: Callable[[], None]) -> None: ...


class ShareSession:
    """A share session of a member; `partitions` is True where the next response must have the partition, even if there is nothing new in it."""

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, partitions: Iterable[TopicIdPartition], connection_id: str) -> None:
        self.key = key
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, bool] = dict.fromkeys(partitions, False)
        self.connection_id = connection_id

    def advance(self) -> None:
        self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def change(self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Raise KafkaError INVALID_REQUEST, and change nothing, if there would be too many partitions."""
        new = dict.fromkeys((partition for partition in added if partition not in self.partitions), True)
        check_count(self.key.group_id, len(self.partitions) + len(new))
        self.partitions |= new
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def rotated(self) -> list[TopicIdPartition]:
        """Return the partitions, beginning with the next one in each request, so that no partition is always the last."""
        partitions = list(self.partitions)
        turn = (self.epoch - 1) % len(partitions) if partitions else 0
        return partitions[turn:] + partitions[:turn]

    def must_include(self, partition: TopicIdPartition, *, has_records: bool, has_error: bool) -> bool:
        must = has_records or has_error or self.partitions.get(partition, False)
        if partition in self.partitions:
            self.partitions[partition] = has_error
        return must


def check_count(group_id: str, partitions: int) -> None:
    """Raise KafkaError INVALID_REQUEST for too many partitions: a fetch of the session looks at all of them in one turn of the
    loop.
    """
    if partitions > PARTITIONS_MAX:
        log.info("[GroupId %s] Refused %d partitions in a share session.", shown(group_id), partitions)
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"More than {PARTITIONS_MAX} partitions in a share session.")


@entity
class ShareSessions:
    """The share sessions of one broker."""

    limit: Callable[[], int]
    #: The session has ended with its connection.
    on_left: Callable[[ShareSession], None]
    #: A group has no session left.
    on_unused: Callable[[str], None]
    _sessions: dict[SessionKey, ShareSession] = field(default_factory=dict)
    _members: Counter[str] = field(default_factory=Counter)
    #: The open sessions of a connection, and the groups that have had one on it.
    _connections: dict[str, tuple[dict[SessionKey, ShareSession], set[str]]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self, key: SessionKey, partitions: Iterable[TopicIdPartition], connection: SessionConnection
    ) -> ShareSession:
        """Raise KafkaError: SHARE_SESSION_LIMIT_REACHED."""
        self.remove(key)
        if len(self._sessions) >= self.limit():
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = self._sessions[key] = ShareSession(key, partitions, connection.id)
        self._members[key.group_id] += 1
        if connection.id not in self._connections:
            self._connections[connection.id] = {}, set()
            connection.on_close(lambda: self._disconnected(connection.id))
        sessions, groups = self._connections[connection.id]
        sessions[key] = session
        groups.add(key.group_id)
        if len(groups) > GROUPS_MAX:
            self._forget_unused(groups)
        return session

    def find(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that is not its first; raises KafkaError unless the request is the next one, or the last."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if epoch != FINAL_EPOCH and epoch != session.epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        return session

    def remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is not None:
            self._members[key.group_id] -= 1
            if not self._members[key.group_id]:
                del self._members[key.group_id]
            if session.connection_id in self._connections:
                self._connections[session.connection_id][0].pop(key, None)
        return session

    def _disconnected(self, connection_id: str) -> None:
        sessions, groups = self._connections.pop(connection_id)
        for key, session in sessions.items():
            self.remove(key)
            self.on_left(session)
        self._forget_unused(groups)

    def _forget_unused(self, groups: set[str]) -> None:
        """Take out the groups that have no session any more, on any connection."""
        for group_id in sorted(groups - self._members.keys()):
            groups.discard(group_id)
            self.on_unused(group_id)
