"""A follower's side of a fetch session with one leader broker, without I/O: it makes the next request (KIP-227).

The leader remembers the fetch positions of the session; a request has only those that changed. Every request has a number,
because a second one may be sent while the first is delayed at the leader: a response is used for a partition only if no
newer position of that partition has been sent meanwhile. A `Wait` ends once, and only by the task that holds it: a task that outlives
its wait (another leader epoch, unfollowed and followed again) must not end the wait that came after it.

    add, remove       the metadata says to follow, or not to
    changed           the log has changed: the new offset must be sent to the leader
    delay             leave the partition out until a time
    await_flush       leave it out until `end` of the returned wait, whatever the metadata says meanwhile
    await_truncation  the same, but a new leader epoch ends the wait
    reset             the connection or the session is gone: begin with a full request
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ottla.broker.replication.partition import Partition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from ottla.protocol.schema import maker
from ottla.storage.log.log import Log

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1

Key: TypeAlias = tuple[bytes, int]
#: A request for each record that is replicated: see `maker`.
new_request, new_topic, new_partition = maker(FetchRequest), maker(FetchTopic), maker(FetchPartition)
NOT_DELAYED = -1
#: The bytes of a response for all partitions that catch up, and the minimum for each. A response has partitions in sync as
#: well, whose producers would wait for megabytes of others; once replica.fetch.response.max.bytes is reached, they would wait
#: for several responses.
CATCH_UP_BYTES = 1024 * 1024
CATCH_UP_BYTES_MIN = 64 * 1024
#: Errors of a partition: the leader or the follower has not applied the newest metadata yet.
LEADERSHIP_ERRORS = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
#: Errors of a response: the leader does not know this session, or the session is for other versions of Fetch.
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Position(NamedTuple):
    """The fetch position of a partition in a request."""

    fetch_offset: int
    last_fetched_epoch: int
    leader_epoch: int
    log_start_offset: int


@dataclass(slots=True, eq=False)
class Wait:
    """A partition is left out until a flush of `flushing`, or a truncation in `leader_epoch`, has ended."""

    key: Key
    leader_epoch: int
    flushing: Log | None = None

    def outlasts(self, partition: Partition) -> bool:
        """Return True if the wait goes on with the role that the metadata has given the partition."""
        if self.flushing is not None:
            return self.flushing is partition.log
        return self.leader_epoch == partition.leader_epoch


@dataclass(slots=True)
class Followed:
    partition: Partition
    sent: Position | None = None
    sent_in: int = -1
    delayed_until_ms: int = NOT_DELAYED
    #: The event that ends the delay in place of a time.
    wait: Wait | None = None


@dataclass(slots=True)
class FollowerSession:
    partition_bytes_max: int
    followed: dict[Key, Followed] = field(default_factory=dict)
    session_id: int = INVALID_SESSION_ID
    next_epoch: int = INITIAL_EPOCH
    number: int = 0
    #: True until the first response since the last reset. That fetch must not be delayed, because its response has the session id.
    is_fresh: bool = True
    _changed: dict[Key, None] = field(default_factory=dict)
    _forgotten: dict[Key, None] = field(default_factory=dict)
    #: The partitions that are left out for now.
    delayed: dict[Key, None] = field(default_factory=dict)

    def add(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        followed = self.followed.get(key)
        if followed is None or followed.partition is not partition:
            self.followed[key] = Followed(partition)
        else:
            if followed.sent is not None and followed.sent.leader_epoch == partition.leader_epoch:
                return  # only the ISR has changed: a request for it would interrupt the one that waits at the leader
            if followed.wait is not None and followed.wait.outlasts(partition):
                return  # its end sends the new position
            followed.delayed_until_ms, followed.wait = NOT_DELAYED, None
            self.delayed.pop(key, None)
        self._changed[key] = None

    def remove(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        followed = self.followed.pop(key, None)
        self._changed.pop(key, None)
        self.delayed.pop(key, None)
        if followed is not None and followed.sent is not None:
            self._forgotten[key] = None

    def changed(self, key: Key) -> None:
        if key in self.followed:
            self._changed[key] = None

    def delay(self, key: Key, until_ms: int) -> None:
        followed = self.followed.get(key)
        if followed is not None and followed.wait is None:
            self._leave_out(key, followed, until_ms)

    def _leave_out(self, key: Key, followed: Followed, until_ms: int) -> None:
        followed.delayed_until_ms = until_ms
        self.delayed[key] = None
        self._changed.pop(key, None)
        if followed.sent is not None:
            followed.sent = None
            self._forgotten[key] = None

    def await_truncation(self, key: Key) -> Wait:
        """Leave the partition out until `end`: records that are appended during the truncation would be truncated as well.

        The leader may have acknowledged them by then. Metadata that changes only the ISR does not end this.
        """
        followed = self.followed[key]
        assert followed.wait is None, f"{followed.partition} is not fetched while something is awaited"
        return self._await(followed, Wait(key, followed.partition.leader_epoch))

    def await_flush(self, key: Key, log: Log) -> Wait | None:
        """Leave the partition out until `end`: its position would acknowledge records that a power loss can take back.

        Return None if that flush is awaited already, or comes after a truncation.
        """
        followed = self.followed.get(key)
        if followed is None or (followed.wait is not None and followed.wait.flushing in (log, None)):
            return None
        return self._await(followed, Wait(key, followed.partition.leader_epoch, log))

    def _await(self, followed: Followed, wait: Wait) -> Wait:
        followed.wait = wait
        self._leave_out(wait.key, followed, NOT_DELAYED)
        return wait

    def end(self, wait: Wait, until_ms: int) -> Partition | None:
        """End the wait; the partition is left out until the given time, when its position is sent.

        Return the partition, None if it does not wait for this any more: the caller must change nothing then.
        """
        followed = self.followed.get(wait.key)
        if followed is None or followed.wait is not wait:
            return None
        followed.wait = None
        self._leave_out(wait.key, followed, until_ms)
        return followed.partition

    def resume(self, now_ms: int) -> int:
        """End the delays that are over; return the time at which the next one ends, or NOT_DELAYED."""
        next_ms = NOT_DELAYED
        for key in list(self.delayed):
            followed = self.followed[key]
            if followed.wait is not None:
                continue
            due_ms = followed.delayed_until_ms
            if due_ms <= now_ms:
                del self.delayed[key]
                self._changed[key] = None
            elif next_ms == NOT_DELAYED or due_ms < next_ms:
                next_ms = due_ms
        return next_ms

    def reset(self) -> None:
        self.session_id, self.next_epoch, self.is_fresh = INVALID_SESSION_ID, INITIAL_EPOCH, True
        self._forgotten.clear()
        for key, followed in self.followed.items():
            followed.sent = None
            if key not in self.delayed:
                self._changed[key] = None

    @property
    def is_open(self) -> bool:
        return self.session_id != INVALID_SESSION_ID

    @property
    def has_news(self) -> bool:
        """Return True if a position has changed that an incremental request can send."""
        return self.is_open and bool(self._changed or self._forgotten)

    def request(self) -> FetchRequest | None:
        """Return the next request, or None if there is nothing to fetch. The caller fills in who asks and how long to wait."""
        if not self.is_open:
            self._changed = dict.fromkeys(key for key in self.followed if key not in self.delayed)
            self._forgotten.clear()
        if not self.is_open and not self._changed:
            return None
        if self.is_open and len(self.delayed) == len(self.followed) and not self._forgotten:
            return None
        self.number += 1
        request = new_request(session_id=self.session_id, session_epoch=self.next_epoch)
        self._name_changed(request)
        if self._forgotten:
            self._name_forgotten(request)
        if self.is_open:
            self.next_epoch = 1 if self.next_epoch == EPOCH_MAX else self.next_epoch + 1
        return request

    def only_change(self) -> tuple[Key, Position, int] | None:
        """Make the next request as `request` does, if it names one partition and nothing else: its key, position and epoch."""
        if len(self._changed) != 1 or self._forgotten or not self.session_id:
            return None
        if self.delayed and len(self.delayed) == len(self.followed):
            return None
        [key] = self._changed
        followed = self.followed[key]
        log = followed.partition.log
        if log is None:
            return None
        place = log.log_end_offset, log.epochs.latest, followed.partition.leader_epoch, log.log_start_offset
        position = tuple.__new__(Position, place)
        if position == followed.sent:
            return None
        self.number += 1
        followed.sent, followed.sent_in = position, self.number
        self._changed.clear()
        epoch = self.next_epoch
        self.next_epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return key, position, epoch

    def _name_changed(self, request: FetchRequest) -> None:
        topics: dict[bytes, FetchTopic] = {}
        catch_up_bytes = self._catch_up_bytes()
        for key in self._changed:
            followed = self.followed[key]
            partition = followed.partition
            log = partition.log
            if log is None:
                continue
            position = Position(log.log_end_offset, log.epochs.latest, partition.leader_epoch, log.log_start_offset)
            if self.is_open and position == followed.sent:
                continue
            followed.sent, followed.sent_in = position, self.number
            self._forgotten.pop(key, None)
            topic = topics.get(key[0])
            if topic is None:
                topic = topics[key[0]] = new_topic(topic=partition.topic, topic_id=key[0], partitions=[])
                request.topics.append(topic)
            topic.partitions.append(
                new_partition(
                    partition=key[1],
                    current_leader_epoch=position.leader_epoch,
                    fetch_offset=position.fetch_offset,
                    last_fetched_epoch=position.last_fetched_epoch,
                    log_start_offset=position.log_start_offset,
                    partition_max_bytes=self.partition_bytes_max if is_in_sync(partition) else catch_up_bytes,
                )
            )
        self._changed.clear()

    def _catch_up_bytes(self) -> int:
        """Return the bytes to ask of each partition of the next request that is not in sync."""
        behind = sum(not is_in_sync(self.followed[key].partition) for key in self._changed)
        return min(self.partition_bytes_max, max(CATCH_UP_BYTES_MIN, CATCH_UP_BYTES // max(1, behind)))

    def _name_forgotten(self, request: FetchRequest) -> None:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, index in self._forgotten:
            by_topic.setdefault(topic_id, []).append(index)
        request.forgotten_topics_data = [
            ForgottenTopic(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic.items()
        ]
        self._forgotten.clear()

    def answered(self, session_id: int) -> None:
        """The leader's response to the newest full request says which session it has opened, 0 for none."""
        if session_id == self.session_id != INVALID_SESSION_ID:
            return
        if self.is_open:
            self.reset()
            return
        self.is_fresh = False
        self.session_id = session_id
        self.next_epoch = 1 if session_id != INVALID_SESSION_ID else INITIAL_EPOCH

    def asked(self, key: Key, number: int) -> Followed | None:
        """Return the partition, if the response to request `number` still counts for it."""
        followed = self.followed.get(key)
        if followed is None or followed.sent is None or followed.sent_in > number:
            return None
        return followed


def is_in_sync(partition: Partition) -> bool:
    """Return True if the replica of this node is in the ISR, as far as this node knows."""
    return partition.node_id in partition.isr.members


def throttled_ms(partition: Partition, size: int) -> int:
    """Count `size` bytes where the replica is throttled (KIP-73); return the pause before its next fetch."""
    throttle = partition.follower_throttle
    if throttle is None:
        return 0
    throttle.record(size)
    return 0 if is_in_sync(partition) else throttle.pause_ms()
