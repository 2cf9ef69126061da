"""The gate of a broker's listeners: while it is closed, clients are disconnected, so that they look for another broker.

Connections are accepted, and introduce themselves (ApiVersions, SASL); the next request ends them. Who only asks whether this broker
runs gets an answer, and clients of every kind take the end of a connection as a reason to try the next address: an error code in
an answer would make most of them ask the same broker again for the new leader.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.work import Work
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.listener import Listener
from ottla.server.turns import run_in_turns
from ottla.server.world import World

#: Connections that are closed in one turn of the loop: about a millisecond.
CLOSED_PER_TURN = 100


class ClientGate:
    """The gate of all listeners of one dispatcher."""

    def __init__(self, world: World, dispatcher: Dispatcher, listeners: Sequence[Listener]) -> None:
        self._world = world
        self._dispatcher = dispatcher
        self._listeners = listeners

    def close(self) -> None:
        self._dispatcher.serve_introductions_only()
        self._world.spawn(run_in_turns(self._world.clock, self._disconnecting()), "client-gate")

    def open(self) -> None:
        self._dispatcher.serve_all()

    def _disconnecting(self) -> Work[None]:
        connections = [each for listener in self._listeners for each in listener.connections]
        for count, connection in enumerate(connections, 1):
            if not connection.closed:
                connection.shut()
            if count % CLOSED_PER_TURN == 0:
                yield None
