"""Metadata responses that wait a moment, because a leader they would name has just died.

A client that loses its connection to a leader asks for metadata at once. A killed broker is fenced about 0.1 s later, so the
response would still name it, and librdkafka then waits one or two seconds before it asks again: measured, that wait was nearly all
of a failover. A follower of the dead leader has seen its own connection break, and delays such responses until
the metadata has changed, or for DELAY_MS at most (how long a leader counts as just lost: replication/fetcher.py).

The dead broker stays in the list of brokers for LISTED_MS, although it leads no partition. One that stopped by a controlled shutdown
does not: its leaders had moved before, and a tool that asks each broker of the list would wait 30 s for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ottla.broker.encoded_metadata import Metadata
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.server.clock import Clock, TimerWheel
from ottla.server.network.context import Peer, Reply
from ottla.server.tasks import isolated

#: The client may have noticed the loss a millisecond earlier: connections break at the same moment for all peers, but not in
#: the same turn of each node's event loop. So a response that names a leader which this broker fetches from is delayed by this
#: time; of other leaders this broker would not notice the loss. A starting client asks two or three times within its first
#: milliseconds, and its responses are not delayed.
SETTLE_MS = 10
OLD_CONNECTION_NS = 250_000_000
#: A fence takes 0.1 s, and the election of a controller before it 0.1 to 0.5 s. A delayed response also delays those after it
#: on the same connection, so the limit is not higher.
DELAY_MS = 500
#: librdkafka (since 2.10) forgets a broker that a response does not list, and with it the leaders of the partitions that it had there,
#: though the same response says so: it then looks for their leaders at its next turn, up to a second later. With Kafka it is
#: spared that, because a dead broker is listed for the rest of its session, up to 9 s.
LISTED_MS = 5_000


#: Completes it, at once or later.
Answer = Callable[[Reply[Metadata]], None]


class DelayedMetadata:
    """The Metadata responses that wait."""

    def __init__(self, clock: Clock, wheel: TimerWheel) -> None:
        self._clock = clock
        self._wheel = wheel
        self._delayed: dict[_Delayed, None] = {}
        self._fenced_ms: dict[int, int] = {}

    def just_fenced(self) -> list[int]:
        """Return the brokers that responses still list although they are fenced: they had not asked to stop."""
        since_ms = self._clock.mono_ms() - LISTED_MS
        return [node_id for node_id, fenced_ms in self._fenced_ms.items() if fenced_ms > since_ms]

    def is_old(self, connection: Peer) -> bool:
        """Return True if the connection has been served before, so that the client is not just starting."""
        return self._clock.mono_ns() - connection.opened_ns > OLD_CONNECTION_NS

    def delay(self, names_lost_leader: Callable[[], bool], answer: Answer) -> Reply[Metadata]:
        """Delay `answer` until a change of the metadata lets `names_lost_leader()` be false, or the time is up."""
        return self._wait(_Delayed(names_lost_leader, answer, self._release), DELAY_MS)

    def settle(self, names_lost_leader: Callable[[], bool], answer: Answer) -> Reply[Metadata]:
        """Delay a response that names no lost leader by SETTLE_MS: this node's view of a broken leader may lag the client's by milliseconds."""
        return self._wait(_Delayed(names_lost_leader, answer, self._settled), SETTLE_MS)

    def _wait(self, delayed: _Delayed, delay_ms: int) -> Reply[Metadata]:
        self._delayed[delayed] = None
        delayed.slot = self._wheel.add(delayed, delay_ms)
        delayed.reply.on_cancel = lambda: self._forget(delayed)
        return delayed.reply

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A listener of the publisher."""
        if delta.cluster is not None:
            for node_id, broker in delta.cluster.changed_brokers.items():
                if broker is None or not broker.fenced or broker.in_controlled_shutdown:
                    self._fenced_ms.pop(node_id, None)
                elif delta.cluster.image.is_unfenced(node_id):
                    self._fenced_ms[node_id] = self._clock.mono_ms()
        for delayed in list(self._delayed):
            isolated(delayed.look)

    def _settled(self, delayed: _Delayed) -> None:
        if delayed.names_lost_leader():
            self._forget(delayed)
            delayed.on_expiry = self._release
            self._wait(delayed, DELAY_MS)
        else:
            self._release(delayed)

    def _release(self, delayed: _Delayed) -> None:
        self._forget(delayed)
        delayed.answer(delayed.reply)

    def _forget(self, delayed: _Delayed) -> None:
        self._delayed.pop(delayed, None)
        self._wheel.remove(delayed, delayed.slot)


@dataclass(slots=True, eq=False)
class _Delayed:
    names_lost_leader: Callable[[], bool]
    answer: Answer
    on_expiry: Callable[[_Delayed], None]
    reply: Reply[Metadata] = field(default_factory=Reply)
    slot: int = -1

    def look(self) -> None:
        """The metadata has changed."""
        if not self.names_lost_leader():
            self.expire()

    def expire(self) -> None:
        self.on_expiry(self)
