"""Network namespaces for three nodes, a fourth for the clients, and cuts between any two of them.

A cut is silent, as a broken cable is: what A sends to B is addressed to a network card that does not exist (an entry in A's
neighbour table), so nothing arrives, nothing is refused, and connections stay open. Each direction is cut by itself. Needs root.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Sequence
from typing import Any, Self

from tests.docker.namespace_harness import available

CLIENT = 0  # the number of the clients' namespace
UNUSED_ADDRESS = "02:00:00:00:00:99"
CLONE_NEWNET = 0x40000000
SKIP_REASON = "needs root, iproute2 and network namespaces"

__all__ = ["CLIENT", "SKIP_REASON", "Network", "available", "enter"]


class Network:
    """A network of namespaces: within `with Network((1, 2, 3)) as network` the calling thread, and all that it starts, is in
    the clients' namespace.
    """

    def __init__(self, node_ids: Sequence[int]) -> None:
        self.node_ids = tuple(node_ids)
        self._prefix = f"ottd{os.getpid() % 100000}"
        self._namespaces: list[str] = []
        self._cuts: set[tuple[int, int]] = set()
        self._home = -1

    @staticmethod
    def address(number: int) -> str:
        return f"10.78.0.{10 + number}"

    def inside(self, node_id: int) -> list[str]:
        """Return the words that run a command in the node's namespace."""
        return ["ip", "netns", "exec", self._namespace(node_id)]

    # -- Cuts --------------------------------------------------------------------------------------------------------

    def cut(self, sender: int, receiver: int) -> None:
        """Lose everything that `sender` sends to `receiver` from now on."""
        self._ip("-n", self._namespace(sender), "neigh", "replace", self.address(receiver),
                 "lladdr", UNUSED_ADDRESS, "dev", "eth0", "nud", "permanent")  # fmt: skip
        self._cuts.add((sender, receiver))

    def isolate(self, node_id: int) -> None:
        """Cut a node off from the other nodes, both ways; clients still reach it."""
        for other in self.node_ids:
            if other != node_id:
                self.cut(node_id, other)
                self.cut(other, node_id)

    def heal(self) -> None:
        for sender, receiver in self._cuts:
            self._ip("-n", self._namespace(sender), "neigh", "del", self.address(receiver), "dev", "eth0")
        self._cuts.clear()

    # -- Life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._lay()
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
            with open(f"/run/netns/{self._namespace(CLIENT)}") as client:
                enter(client.fileno())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the clients' namespace, and remove all namespaces."""
        if self._home >= 0:
            enter(self._home)
            os.close(self._home)
            self._home = -1
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        self._namespaces.clear()

    def _namespace(self, number: int) -> str:
        return f"{self._prefix}-{number}"

    def _lay(self) -> None:
        """Make a bridge in the clients' namespace, and a cable from it to each node."""
        client = self._namespace(CLIENT)
        for number in (CLIENT, *self.node_ids):
            self._ip("netns", "add", self._namespace(number))
            self._namespaces.append(self._namespace(number))
            self._ip("-n", self._namespace(number), "link", "set", "lo", "up")
        self._ip("-n", client, "link", "add", "eth0", "type", "bridge")
        self._ip("-n", client, "addr", "add", f"{self.address(CLIENT)}/24", "dev", "eth0")
        self._ip("-n", client, "link", "set", "eth0", "up")
        for node_id in self.node_ids:
            own, port = self._namespace(node_id), f"port{node_id}"
            self._ip("-n", own, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", client)
            self._ip("-n", client, "link", "set", port, "master", "eth0", "up")
            self._ip("-n", own, "addr", "add", f"{self.address(node_id)}/24", "dev", "eth0")
            self._ip("-n", own, "link", "set", "eth0", "up")

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def enter(namespace_fd: int) -> None:
    """Enter the namespace with this thread and the threads that it starts later."""
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace_fd, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")
