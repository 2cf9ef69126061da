"""The common part of the harnesses of this folder: a process stands for each container, and its published ports are
forwarded.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.docker.compose_file import ROOT, Service

READY = "Kafka Server started"
STOP_SECONDS_MAX = 30
STOCK_CLIENT = ROOT / "tests/docker/stock_client.py"
PYTHON = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}

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


@dataclass
class ContainerHarness(ABC):
    """A harness of containers: `with ...ContainerHarness(services, folder) as harness`, then `harness.start(service)` and `harness.run(where, ...)`."""

    services: list[Service]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    #: The folder of the compose file, to which its mounts are relative.
    beside: Path = ROOT / "docker"

    @abstractmethod
    def address(self, service: Service) -> str: ...

    @abstractmethod
    def placed(self, where: str, command: Sequence[str]) -> list[str]:
        """Return the words that run `command` in a service, or on the "host"."""

    def environment(self, service: Service) -> dict[str, str]:
        return service.environment

    def forwarded(self) -> list[Service]:
        """Return the services with published ports that are not already ports of the host."""
        return self.services

    def __enter__(self) -> Self:
        try:
            self.prepare()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Prepare the harness before any service starts. `close` follows even if this fails."""
        rules = [f"{host}:{self.address(s)}:{inner}" for s in self.forwarded() for host, inner in s.ports]
        if not rules:
            return
        command = self.placed("host", [sys.executable, "-c", FORWARDER, *rules])
        process = self.processes["ports"] = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"forwarding\n"

    def close(self) -> None:
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                print(f"{name} had to be killed")

    def start(self, service: Service) -> None:
        """Start the image's entry point, or the command of the service."""
        folder = self.folder / service.name
        for target, source in service.mounts.items():
            (folder / target[1:]).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(self.beside / source, folder / target[1:])
        root = {"OTTLA_CONTAINER_ROOT": str(folder)}
        command = service.raw.get("command", ["ottla", "container", "run"])
        self.processes[service.name] = subprocess.Popen(
            self.placed(service.name, [sys.executable, "-P", "-m", *command]),
            env=PYTHON | root | self.environment(service),
            stdout=(self.folder / f"{service.name}.log").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def log(self, service: Service) -> str:
        return (self.folder / f"{service.name}.log").read_text()

    def run(self, where: str, *command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.placed(where, command), capture_output=True, text=True, timeout=60, cwd=cwd, env=PYTHON
        )

    def produce_and_consume(self, asked: Sequence[tuple[str, str]], copies: int, *security: str) -> None:
        """Run stock clients at each (place, address), all at the same time, because each spends most of its time on a group's
        first rebalance.
        """

        def ask(one: tuple[str, str]) -> subprocess.CompletedProcess[str]:
            return self.run(one[0], sys.executable, str(STOCK_CLIENT), one[1], str(copies), *security)

        with ThreadPoolExecutor(len(asked)) as pool:
            for (where, address), done in zip(asked, pool.map(ask, asked), strict=True):
                said = f"{done.stdout}{done.stderr[-2000:]}"
                assert done.returncode == 0, f"{address} from {where}: {said}\n{self.logs()}"

    def logs(self) -> str:
        return "\n".join(f"{service.name}: {self.log(service)[-2000:]}" for service in self.services)
