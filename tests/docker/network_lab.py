"""Containers without an engine: a network namespace for each, names by a hosts file, and one namespace more that is the
host, in which published ports are forwarded. Needs root; what is made is removed again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.docker.compose_file import ROOT, Service

READY = "Kafka Server started"

FORWARDER = """
import asyncio, sys
async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data); await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def main():
    async def serve(port, target):
        async def accept(reader, writer):
            try:
                out_reader, out_writer = await asyncio.open_connection(*target)
            except OSError:
                writer.close(); return
            await asyncio.gather(pump(reader, out_writer), pump(out_reader, writer))
        await asyncio.start_server(accept, "127.0.0.1", port)
    for rule in sys.argv[1:]:
        port, host, inner = rule.split(":")
        await serve(int(port), (host, int(inner)))
    print("forwarding", flush=True)
    await asyncio.Event().wait()
asyncio.run(main())
"""


def available() -> bool:
    """Whether namespaces and virtual links can be made here."""
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
class NetworkLab:
    """`with NetworkLab(services, folder) as lab`: then `lab.start(service)` and `lab.run(where, ...)`."""

    services: list[Service]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    _namespaces: list[str] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        return f"ott{os.getpid() % 10000}"

    def namespace(self, name: str) -> str:
        """Of a service, or of the host."""
        return f"{self.prefix}-{name}"

    def address(self, service: Service) -> str:
        return f"10.77.0.{11 + self.services.index(service)}"

    def __enter__(self) -> Self:
        try:
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
            self._forward()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"{name} had to be killed")
        for namespace in self._namespaces:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
            shutil.rmtree(f"/etc/netns/{namespace}", ignore_errors=True)

    def start(self, service: Service) -> None:
        """The image's entry point with this very environment."""
        root = self.folder / service.name
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OTTLA_CONTAINER_ROOT": str(root),
            **service.environment,
        }
        command = [sys.executable, "-P", "-m", "ottla.main", "container", "run"]
        # A container's host name is its own too, and resolves there.
        named = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', service.hostname]
        self.processes[service.name] = subprocess.Popen(
            ["ip", "netns", "exec", self.namespace(service.name), *named, *command],
            env=environment,
            stdout=(self.folder / f"{service.name}.log").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def log(self, service: Service) -> str:
        return (self.folder / f"{service.name}.log").read_text()

    def run(self, where: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in a service's namespace, or in the host's."""
        return subprocess.run(
            ["ip", "netns", "exec", self.namespace(where), *command],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        )

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

    def _forward(self) -> None:
        rules = [f"{host}:{self.address(s)}:{inner}" for s in self.services for host, inner in s.ports]
        if not rules:
            return
        command = ["ip", "netns", "exec", self.namespace("host"), sys.executable, "-c", FORWARDER, *rules]
        process = self.processes["ports"] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"forwarding\n"

    def _ip(self, *arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"
