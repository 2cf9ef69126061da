"""Ports for nodes that a test starts."""

from __future__ import annotations

import os
import random
import socket
from collections import deque

from ottla.local.nodes import ADMIN_PORT_STEP, CONTROLLER_PORT_STEP

# Linux uses 32768 and above for outgoing connections: such a connection could take a port before the node listens on it.
LOWEST, HIGHEST = 15_000, 32_000
#: More than the distance between the first and the last port of one node, or of those of one call.
SPAN = ADMIN_PORT_STEP + 100
#: The ports that were returned last: their users may not have begun to listen. They are few, so that hundreds of consecutive
#: ports can be found.
_given: deque[int] = deque(maxlen=30)


def free_ports(count: int) -> list[int]:
    """Return consecutive ports on which no process listens now, and that were not returned just before."""
    while True:
        first = random.SystemRandom().choice(own_ports())
        ports = list(range(first, first + count))
        if _take(ports):
            return ports


def free_base_port() -> int:
    """Return a `--base-port` for one node of `ottla dev` that is stopped and started again with the same ports."""
    while True:
        port = random.SystemRandom().choice(own_ports())
        if _take([port, port + CONTROLLER_PORT_STEP, port + ADMIN_PORT_STEP]):
            return port


def own_ports() -> range:
    """Return the first ports of this worker of pytest-xdist.

    Workers have different ports: another one might take a port between its check and its use, or while its node is stopped.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % workers
    width = (HIGHEST - LOWEST) // workers
    return range(LOWEST + number * width, LOWEST + (number + 1) * width - SPAN)


def _take(ports: list[int]) -> bool:
    if any(port in _given or not is_free(port) for port in ports):
        return False
    _given.extend(ports)
    return True


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
