"""Ports for nodes that a test starts."""

from __future__ import annotations

import random
import socket

# Linux gives outgoing connections 32768 and up: one of those could be taken again before the node listens there.
LOWEST, HIGHEST = 15_000, 32_000


def free_ports(count: int) -> list[int]:
    """Return consecutive ports on which no process listens now."""
    while True:
        first = random.SystemRandom().randrange(LOWEST, HIGHEST)
        ports = list(range(first, first + count))
        if all(is_free(port) for port in ports):
            return ports


def is_free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
