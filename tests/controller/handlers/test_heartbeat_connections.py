"""The controller watches some connections of a broker: when the newest one breaks, the session ends after the grace period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.handlers import cluster
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.server.network.context import RequestContext
from tests.controller.handlers.test_in_turns import parts_of
from tests.controller.test_runtime import GRACE_MS, Quorum, active, fenced, register

BROKER = 1


class Connection:
    """A `Peer` with the parts that the handler uses."""

    def __init__(self, opened_ns: int) -> None:
        self.opened_ns = opened_ns
        self.close: Callable[[], None] = lambda: None

    def on_close(self, callback: Callable[[], None]) -> None:
        self.close = callback


class Beating:
    def __init__(self) -> None:
        self.quorum: Quorum = active()
        register(self.quorum, BROKER)
        self.quorum.commit()
        self._parts = parts_of(self.quorum)

    def beat(self, connection: Any) -> None:
        epoch = self.quorum.controller.image.cluster.brokers[BROKER].epoch
        request = BrokerHeartbeatRequest(broker_id=BROKER, broker_epoch=epoch, current_metadata_offset=epoch)
        cluster.handle_heartbeat(self._parts, request, RequestContext(ApiKey.BROKER_HEARTBEAT, 1, None, connection))

    def is_fenced_after_the_grace(self) -> bool:
        self.quorum.clock.advance(GRACE_MS + 1)
        return fenced(self.quorum) == [BROKER]


def test_the_break_of_the_newest_connection_fences_the_broker() -> None:
    beating = Beating()
    old, new = Connection(1), Connection(2)
    beating.beat(old)
    beating.beat(new)
    old.close()
    assert not beating.is_fenced_after_the_grace()
    new.close()
    assert beating.is_fenced_after_the_grace()


def test_a_late_heartbeat_on_an_old_connection_does_not_make_it_the_newest() -> None:
    """After a cut of the network the data on the old connection arrives late, and then its close."""
    beating = Beating()
    old, new = Connection(1), Connection(2)
    beating.beat(new)
    beating.beat(old)
    old.close()
    assert not beating.is_fenced_after_the_grace()
    new.close()
    assert beating.is_fenced_after_the_grace()


def test_an_old_connection_is_watched_once_no_newer_one_is_left() -> None:
    beating = Beating()
    old, new = Connection(1), Connection(2)
    beating.beat(new)
    new.close()
    beating.beat(old)
    assert not beating.is_fenced_after_the_grace()
    old.close()
    assert beating.is_fenced_after_the_grace()
