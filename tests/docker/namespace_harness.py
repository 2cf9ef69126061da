"""Containers without an engine: a network namespace for each, names by a hosts file, and another namespace as the host, in
which published ports are forwarded. It needs root, and removes all that it makes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.docker.compose_file import Service
from tests.docker.harness import ContainerHarness


def available() -> bool:
    """Return whether namespaces and virtual links can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"ottp{os.getpid() % 10000}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode == 0
    if made:
        made = (
            subprocess.run(["ip", "-n", name, "link", "add", "br0", "type", "bridge"], capture_output=True).returncode
            == 0
        )
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return made


@dataclass
class NamespaceHarness(ContainerHarness):
    _namespaces: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return f"ott{os.getpid() % 10000}"

    def namespace(self, name: str) -> str:
        """Return the namespace of a service, or of the host."""
        return f"{self.prefix}-{name}"

    def address(self, service: Service) -> str:
        return f"10.77.0.{11 + self.services.index(service)}"

    def placed(self, where: str, command: Sequence[str]) -> list[str]:
        inside = ["ip", "netns", "exec", self.namespace(where)]
        # A container has its own host name, which resolves inside of it.
        for service in self.services:
            if service.name == where:
                inside += ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', service.hostname]
        return [*inside, *command]

    def prepare(self) -> None:
        self._make("host", "127.0.0.1 localhost\n")
        self._ip("-n", self.namespace("host"), "link", "add", "br0", "type", "bridge")
        self._ip("-n", self.namespace("host"), "addr", "add", "10.77.0.1/24", "dev", "br0")
        self._ip("-n", self.namespace("host"), "link", "set", "br0", "up")
        hosts = "127.0.0.1 localhost\n" + "".join(
            f"{self.address(s)} {' '.join(sorted({s.name, s.hostname}))}\n" for s in self.services
        )
        for number, service in enumerate(self.services):
            self._make(service.name, hosts)
            self._join(service, number)
        super().prepare()

    def close(self) -> None:
        super().close()
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
            shutil.rmtree(f"/etc/netns/{namespace}", ignore_errors=True)

    def _make(self, name: str, hosts: str) -> None:
        namespace = self.namespace(name)
        self._ip("netns", "add", namespace)
        self._namespaces.append(namespace)
        folder = Path("/etc/netns") / namespace
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "hosts").write_text(hosts)
        self._ip("-n", namespace, "link", "set", "lo", "up")

    def _join(self, service: Service, number: int) -> None:
        inside, outside = f"{self.prefix}i{number}", f"{self.prefix}o{number}"
        self._ip("link", "add", inside, "type", "veth", "peer", "name", outside)
        self._ip("link", "set", outside, "netns", self.namespace("host"))
        self._ip("link", "set", inside, "netns", self.namespace(service.name))
        self._ip("-n", self.namespace("host"), "link", "set", outside, "master", "br0", "up")
        self._ip("-n", self.namespace(service.name), "addr", "add", f"{self.address(service)}/24", "dev", inside)
        self._ip("-n", self.namespace(service.name), "link", "set", inside, "up")

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
