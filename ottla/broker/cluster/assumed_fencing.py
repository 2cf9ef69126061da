"""Decides whether a broker has to assume that it was fenced, because it has lost the controller and most other brokers. It then
serves no clients.

A broker that is cut off goes on leading by its own metadata, and each of its responses names itself: a client that still reaches it
has no reason to look elsewhere. The others have fenced it when its session was over, and lead in its place. What it appends for
acks=all is never acknowledged, what it acknowledges with acks=1 is lost, and a member of a group that it coordinates is alone there.

    out of touch   no heartbeat of the last broker.session.timeout.ms was answered
    reached        another broker that answers now
    silent         one of which nothing comes back: its host is down, or the network is
    gone           one whose host answers, and no broker there: its process has ended, and the network is not to blame

    successor      one that is reached, and whose metadata has a newer leader epoch of a partition that this broker leads

A broker that is out of touch assumes that it was fenced in two cases: a broker that it reaches knows a successor; or, twice in
a row, it and the brokers that it reaches are no majority of all brokers that are not gone. If only the quorum is away, there is
no successor, and brokers reach each other and go on serving, as Apache Kafka's do; so does the last broker after all others
have ended.
What other brokers answer does not depend on their own assumption, so that a wrong assumption does not spread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from itertools import islice
from typing import NamedTuple

from ottla.broker.cluster.broker_state import BrokerState
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.clock import pause
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PeerSecurity
from ottla.server.network.wire import ChannelClosed, RequestTimeout, Unreachable
from ottla.server.world import World

log = logging.getLogger(__name__)

#: The time in which another broker answers, if the network is well and its host not overloaded.
ANSWER_MS = 1_000
#: The time between two looks at the others while the controller does not answer.
AGAIN_MS = 1_000
#: Limit of the partitions that other brokers are asked about. A new leader of one is enough, and a fenced broker leads none of
#: them any more.
LED_ASKED_ABOUT = 20


class Reachability(Enum):
    """The state of another broker, as this broker sees it."""

    REACHED = "reached"
    SILENT = "silent"
    GONE = "gone"
    SUCCESSOR = "successor"


class Led(NamedTuple):
    """A partition that this broker leads, and its leader epoch."""

    topic: str
    partition: int
    leader_epoch: int


def reason(found: Sequence[Reachability]) -> str | None:
    """Return why a broker that is out of touch has to assume that it was fenced, or None."""
    if Reachability.SUCCESSOR in found:
        return "another broker leads in its place"
    if is_minority(found.count(Reachability.REACHED), found.count(Reachability.SILENT)):
        return "it reaches no majority of the brokers"
    return None


def is_minority(reached: int, silent: int) -> bool:
    """Return True if this broker and those that it reaches are no majority of all that may be running."""
    return 1 + reached <= silent


class AssumedFencing:
    """Looks for other brokers while a broker is out of touch with the controller."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        lifecycle: BrokerLifecycle,
        security: PeerSecurity,
        led: Callable[[], Iterable[Led]],
    ) -> None:
        """Take from `led` the partitions that this broker leads and others could."""
        self.is_assumed = False
        #: Called with True when clients must not be served any more, and with False when they are served again.
        self.on_change: Callable[[bool], None] = lambda is_assumed: None
        self._world = world
        self._node_id = configs.node_id
        self._session_timeout_ms: int = configs["broker.session.timeout.ms"]
        self._listener = configs.node.inter_broker_listener
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._security = security
        self._led = led

    def start(self) -> None:
        """Begin to watch. It is called once the broker is unfenced."""
        self._world.spawn(self._run(), "assumed-fencing")

    async def _run(self) -> None:
        while self._lifecycle.state is BrokerState.RUNNING:
            left_ms = self._session_left_ms()
            if left_ms > 0:
                self._become(None)
                await pause(self._world.clock, left_ms)
                continue
            found = await self._look()
            if not self.is_assumed and Reachability.SUCCESSOR not in found and reason(found) is not None:
                # Look twice before all connections of clients are closed: another broker, or this process, may have had no CPU
                # time for a second.
                found = await self._look()
            why = reason(found)
            # A heartbeat may have been answered during the look, most of all after a pause of the whole process, or the broker
            # may be stopping.
            is_alone = self._session_left_ms() <= 0 and self._lifecycle.state is BrokerState.RUNNING
            self._become(why if is_alone else None)
            await pause(self._world.clock, AGAIN_MS)
        self._become(None)  # a controlled shutdown closes the listeners in its own order

    def _session_left_ms(self) -> int:
        return self._lifecycle.contact_ms + self._session_timeout_ms - self._world.clock.mono_ms()

    def _become(self, why: str | None) -> None:
        is_assumed = why is not None
        if is_assumed is self.is_assumed:
            return
        self.is_assumed = is_assumed
        if is_assumed:
            silent_ms = self._world.clock.mono_ms() - self._lifecycle.contact_ms
            log.error(
                "Broker %d assumes that it was fenced, and serves no clients, who find other brokers: no controller has answered for %d ms,"
                " and %s",
                self._node_id, silent_ms, why,
            )  # fmt: skip
        else:
            log.info("Broker %d serves clients again", self._node_id)
        self.on_change(is_assumed)

    async def _look(self) -> list[Reachability]:
        """Return how each other broker was found."""
        led = {(topic, index): epoch for topic, index, epoch in islice(self._led(), LED_ASKED_ABOUT)}
        others = (
            broker.endpoint(self._listener)
            for node_id, broker in sorted(self._metadata.image.cluster.brokers.items())
            if node_id != self._node_id and not broker.fenced
        )
        return await asyncio.gather(*(self._ask(endpoint, led) for endpoint in others if endpoint is not None))

    async def _ask(self, endpoint: RegisteredEndpoint, led: Mapping[tuple[str, int], int]) -> Reachability:
        channel = Channel(self._world, endpoint.host, endpoint.port, f"broker-{self._node_id}", self._security)
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                await channel.connect()
            return Reachability.SUCCESSOR if led and await self._is_succeeded(channel, led) else Reachability.REACHED
        except (TimeoutError, RequestTimeout, Unreachable):
            return Reachability.SILENT
        except ChannelClosed:
            return Reachability.GONE
        finally:
            channel.close()

    @staticmethod
    async def _is_succeeded(channel: Channel, led: Mapping[tuple[str, int], int]) -> bool:
        """Return whether the other broker's metadata has a newer leader epoch. False without an answer: the broker counts as
        reached.
        """
        topics = [MetadataRequestTopic(name=name) for name in dict.fromkeys(topic for topic, _ in led)]
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                response = await channel.request(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
        except (TimeoutError, RequestTimeout, ChannelClosed):
            return False
        return any(
            part.leader_epoch > led.get((topic.name or "", part.partition_index), part.leader_epoch)
            for topic in response.topics
            for part in topic.partitions
        )
