"""Ports for nodes that a test starts."""

from __future__ import annotations

import random
import socket

from ottla.cli.local_nodes import ADMIN_PORT_STEP, CONTROLLER_PORT_STEP

# Linux gives outgoing connections 32768 and up: one of those could be taken again before the node listens there.
LOWEST, HIGHEST = 15_000, 32_000


def free_ports(count: int) -> list[int]:
    """Return consecutive ports on which no process listens now."""
    while True:
        first = random.SystemRandom().randrange(LOWEST, HIGHEST)
        ports = list(range(first, first + count))
        if all(is_free(port) for port in ports):
            return ports


def free_base_port() -> int:
    """Return a `--base-port` for one node of `ottla dev` that is stopped and started again with the same ports."""
    while True:
        (port,) = free_ports(1)
        if all(is_free(port + step) for step in (CONTROLLER_PORT_STEP, ADMIN_PORT_STEP)):
            return port


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
