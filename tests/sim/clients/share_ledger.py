"""The knowledge that the members of a share group have together, held against each answer that one of them gets (invariants 55 to 58).

A lock counts from the answer that gave it until its member has given the record back, its session is over, its time has passed
(counted from the request, so never too long), or another leader answers. What a leader answers that the cluster has replaced, and
that does not know it yet, is no promise: it cannot write, so nothing of what it decides lasts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.broker.share.in_flight import AcknowledgeType
from tests.histories import Violation
from tests.sim.history import TopicPartition

#: topic, partition, offset
Place = tuple[str, int, int]
#: first and last offset, and the type of each
Batch = tuple[int, int, list[int]]
FINAL = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})


@dataclass(eq=False)
class Session:
    """One share session, as its member sees it."""

    member: str
    is_open: bool = True
    epoch: int = 0
    #: Records whose locks others acquired meanwhile. This is a mistake, unless the session turns out to be over.
    contested: list[tuple[float, str]] = field(default_factory=list)


class Answered(NamedTuple):
    """The times at which a request was sent and answered, and the leader that answered, by its life and epoch (None if it may
    have been replaced).
    """

    sent: float
    received: float
    leadership: object


class Lock(NamedTuple):
    session: Session
    since: float
    until: float
    leadership: object


@dataclass
class Delivery:
    """All deliveries of one record."""

    value: bytes
    #: The highest delivery count of all; the highest of a leader that was not replaced, and when it was seen.
    count: int = 0
    trusted: int = 0
    seen: float = 0.0
    locks: dict[Session, Lock] = field(default_factory=dict)
    accepted: float | None = None
    #: The member held the record when its acceptance was confirmed: any response about a record behind the group's start is
    #: NONE.
    is_accepted_in_time: bool = False
    #: The acknowledgements that end the record's deliveries (`FINAL`), as members have sent them; they may have been lost.
    decisions: set[int] = field(default_factory=set)


class ShareLedger:
    """The records of one group; `limit` is its share.delivery.count.limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.deliveries: dict[Place, Delivery] = {}
        #: Requests whose answers were lost: each may have delivered any record of the partition once more.
        self.lost: Counter[TopicPartition] = Counter()

    # -- Answers -----------------------------------------------------------------------------------------------------

    def delivered(
        self,
        session: Session,
        place: Place,
        value: bytes | None,
        count: int,
        answered: Answered,
        lock_seconds: float,
    ) -> None:
        """Take a delivery; `value` is None for an offset without a record of the application."""
        known = self.deliveries.setdefault(place, Delivery(value or b""))
        if value is not None and known.value != value:
            raise Violation("2", f"{session.member} was given {value!r} at {place}, where {known.value!r} was before")
        if count > self.limit:
            raise Violation("57", f"{place} is delivered for the {count}th time, the limit is {self.limit}")
        if answered.leadership is not None:
            self._judge(session, place, known, count, answered)
            until = answered.sent + lock_seconds
            known.locks[session] = Lock(session, answered.received, until, answered.leadership)
            if count > known.trusted:
                known.trusted, known.seen = count, answered.received
        known.count = max(known.count, count)

    def _judge(self, session: Session, place: Place, known: Delivery, count: int, answered: Answered) -> None:
        if known.accepted is not None and known.accepted < answered.sent:
            raise Violation("58", f"{place} is delivered to {session.member}, and was accepted at {known.accepted:.3f}")
        if count < known.trusted and known.seen < answered.sent:
            raise Violation("58", f"{place} is delivered with the count {count} after {known.trusted}")
        self._contest(session, place, known, answered)

    def _contest(self, session: Session, place: Place, known: Delivery, answered: Answered) -> None:
        """Check that no session of others that has a lock of the record goes on."""
        for lock in self._others(known, session, answered):
            text = f"{place} is locked for {lock.session.member}, and is {session.member}'s as well"
            lock.session.contested.append((answered.received, text))

    def _others(self, known: Delivery, session: Session, answered: Answered) -> Iterator[Lock]:
        """Return the locks of other sessions that were certainly held when this request was answered."""
        for other, lock in list(known.locks.items()):
            if not other.is_open or lock.until <= answered.received or lock.leadership != answered.leadership:
                if other is not session:
                    del known.locks[other]
            elif other is not session and lock.since <= answered.sent:
                yield lock

    def went_on(self, session: Session, sent: float) -> None:
        """Note that a request of the session was answered: the session was not over, and its locks were valid."""
        for when, text in session.contested:
            if when <= sent:
                raise Violation("55", text)

    def closed(self, session: Session) -> None:
        session.is_open = False

    # -- Acknowledgements --------------------------------------------------------------------------------------------

    def acknowledging(self, session: Session, partition: TopicPartition, batches: Iterable[Batch]) -> list[Lock | None]:
        """Note that the request is about to be sent.

        Return the lock of each record, None for a record that the member no longer holds.
        """
        locks = []
        for place, kind in places(partition, batches):
            known = self.deliveries[place]
            locks.append(known.locks.get(session))
            if kind != AcknowledgeType.RENEW:
                known.locks.pop(session, None)
                known.decisions |= {kind} & FINAL
        return locks

    def acknowledged(
        self,
        session: Session,
        partition: TopicPartition,
        batches: Iterable[Batch],
        locks: Iterable[Lock | None],
        answered: Answered,
        lock_seconds: float,
    ) -> None:
        """The answer says that it is done."""
        for (place, kind), lock in zip(places(partition, batches), locks, strict=True):
            known = self.deliveries[place]
            if answered.leadership is not None:
                self._contest(session, place, known, answered)
            if kind == AcknowledgeType.ACCEPT and known.accepted is None:
                known.accepted = answered.received
                known.is_accepted_in_time = _is_held(lock, answered)
            elif kind == AcknowledgeType.RENEW and session in known.locks and _is_held(lock, answered):
                known.locks[session] = known.locks[session]._replace(until=answered.sent + lock_seconds)

    def refused(self, session: Session, locks: Iterable[Lock | None], answered: Answered, why: str) -> None:
        """Take the answer that the member does not hold one of the records."""
        if all(_is_held(lock, answered) for lock in locks):
            raise Violation("55", f"{session.member} holds what it acknowledges, and is answered {why}")

    # -- The end -----------------------------------------------------------------------------------------------------

    def check(self, logs: Mapping[TopicPartition, Mapping[int, bytes]]) -> None:
        """Check that every record that the group could read is known, and that the group has reached the end."""
        for (topic, index), log in logs.items():
            lost = self.lost[topic, index]
            for offset, value in log.items():
                known = self.deliveries.get((topic, index, offset))
                if known is None:
                    if lost < self.limit:
                        raise Violation("56", f"{value!r} at {offset} of {topic}-{index} was never delivered")
                elif known.value != value:
                    raise Violation(
                        "2", f"{known.value!r} was delivered at {offset} of {topic}-{index}, there is {value!r}"
                    )
                elif not known.decisions and known.count + lost < self.limit:
                    raise Violation(
                        "57", f"{value!r} at {offset} of {topic}-{index} was given up after {known.count} deliveries"
                    )
        for topic, index, offset in self.deliveries:
            if self.deliveries[topic, index, offset].value and offset not in logs[topic, index]:
                raise Violation("31", f"the group was given {offset} of {topic}-{index}, which no reader may see")


def _is_held(lock: Lock | None, answered: Answered) -> bool:
    """Certainly, until the answer came."""
    if lock is None or answered.leadership is None:
        return False
    return lock.until > answered.received and lock.leadership == answered.leadership


def places(partition: TopicPartition, batches: Iterable[Batch]) -> Iterator[tuple[Place, int]]:
    for first, last, types in batches:
        for offset in range(first, last + 1):
            yield (*partition, offset), types[offset - first] if len(types) > 1 else types[0]
