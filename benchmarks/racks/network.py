"""The network of the racks: a namespace for each, whose only way to the others is the cable (benchmarks/racks/cable.py). Needs root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

from benchmarks.racks.cable import hardware_address
from tests.chaos.network import enter

END_SECONDS_MAX = 10


class RackNetwork:
    """The racks' network, for use as `with RackNetwork(3, delay_ms=1, loss=0.001) as network`. All of it is removed at
    the end.
    """

    def __init__(self, racks: int, *, delay_ms: float, loss: float) -> None:
        self.racks = range(1, racks + 1)
        self.frames_carried = self.frames_lost = 0
        self._delay_ms, self._loss = delay_ms, loss
        self._prefix = f"ottr{os.getpid() % 100000}"
        self._namespaces: list[str] = []
        self._descriptors: dict[int, int] = {}
        self._home = -1
        self._cable: subprocess.Popen[str] | None = None

    @staticmethod
    def address(rack: int) -> str:
        return f"10.79.0.{rack}"

    @contextmanager
    def inside(self, rack: int) -> Iterator[None]:
        """Run the body in that rack: sockets and processes of this thread belong to its network."""
        enter(self._descriptors[rack])
        try:
            yield
        finally:
            enter(self._home)

    def cut(self, *racks: int) -> None:
        """Cut these racks off: their frames to and from other racks are lost, and connections stay open. Without racks all are
        connected again.
        """
        cable = self._cable
        assert cable is not None and cable.stdin is not None
        cable.stdin.write(f"{' '.join(map(str, racks))}\n")
        cable.stdin.flush()

    # -- Life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            self._lay()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def cable_pid(self) -> int:
        assert self._cable is not None
        return self._cable.pid

    def close(self) -> None:
        if self._cable is not None:
            said, _ = self._cable.communicate(timeout=END_SECONDS_MAX)
            self.frames_carried, self.frames_lost = map(int, said.split()[-2:] if said.strip() else (0, 0))
            self._cable = None
        for descriptor in (*self._descriptors.values(), self._home):
            if descriptor >= 0:
                os.close(descriptor)
        self._descriptors.clear()
        self._home = -1
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
        self._namespaces.clear()

    def _lay(self) -> None:
        middle = self._made("middle")
        for rack in self.racks:
            own, uplink = self._made(str(rack)), f"rack{rack}"
            _ip("-n", own, "link", "add", "eth0", "address", hardware_address(rack),
                "type", "veth", "peer", "name", uplink, "netns", middle)  # fmt: skip
            _ip("-n", middle, "link", "set", uplink, "up")
            _ip("-n", own, "addr", "add", f"{self.address(rack)}/24", "dev", "eth0")
            _ip("-n", own, "link", "set", "eth0", "up")
            for other in self.racks:
                if other != rack:
                    _ip("-n", own, "neigh", "replace", self.address(other),
                        "lladdr", hardware_address(other), "dev", "eth0", "nud", "permanent")  # fmt: skip
            self._descriptors[rack] = os.open(f"/run/netns/{own}", os.O_RDONLY | os.O_CLOEXEC)
        self._cable = self._carried(middle, [f"rack{rack}" for rack in self.racks])

    def _made(self, name: str) -> str:
        namespace = f"{self._prefix}-{name}"
        _ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _carried(self, namespace: str, uplinks: Iterable[str]) -> subprocess.Popen[str]:
        words = ["--delay-ms", str(self._delay_ms), "--loss", str(self._loss), *uplinks]
        command = ["ip", "netns", "exec", namespace, sys.executable, "-m", "benchmarks.racks.cable", *words]
        cable = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cable.stdout is not None
        if cable.stdout.readline() != "ready\n":
            raise RuntimeError("the cable between the racks does not start")
        return cable


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr}")
