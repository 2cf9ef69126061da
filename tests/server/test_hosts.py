"""Names in Host headers: those that a monitoring system uses for a listener of this machine, and those that only a foreign page
has.
"""

from __future__ import annotations

import asyncio
import socket

import pytest

from ottla.server.admin import AdminServer
from ottla.server.hosts import is_of_this_network
from ottla.server.metrics import Registry
from ottla.server.world import RealWorld

KNOWN = (
    "127.0.0.1:9644", "[::1]:9644", "10.1.2.3", "localhost:9644", "kafka-1:9644", "host.docker.internal:9644", "me.local",
    socket.gethostname(),
)  # fmt: skip
FOREIGN = ("evil.example:9644", "127.0.0.1.evil.example", "localhost.evil.example", "local.example.")


@pytest.mark.parametrize("host", KNOWN)
def test_a_name_that_no_one_elsewhere_can_own_is_taken(host: str) -> None:
    assert is_of_this_network(host, "localhost")


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_name_of_elsewhere_is_taken_only_by_a_listener_that_other_machines_reach(host: str) -> None:
    real = RealWorld(asyncio.get_running_loop())

    def server(at: str) -> AdminServer:
        return AdminServer(real.world, at, 9644, Registry(), lambda: (), lambda: ())

    assert not is_of_this_network(host, "localhost")
    assert not server("127.0.0.1").knows(host) and not server("localhost").knows(host)
    assert server("0.0.0.0").knows(host) and server("kafka-1.example").knows(host)
    assert server("127.0.0.1").knows(None), "probes of HTTP/1.0 have no Host"
