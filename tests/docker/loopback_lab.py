"""Containers without an engine and without root: a loopback address for each (127.77.0.x), put into its environment wherever a name or
"all addresses" stands; published ports are forwarded from 127.0.0.1. The same to use as NetworkLab, further from the real thing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.docker.compose_file import ROOT, Service
from tests.docker.network_lab import FORWARDER

ADMIN_PORT = 9644


@dataclass
class LoopbackLab:
    services: list[Service]
    folder: Path
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def address(self, service: Service) -> str:
        return f"127.77.0.{11 + self.services.index(service)}"

    def environment(self, service: Service) -> dict[str, str]:
        own = self.address(service)
        changed = {name: self.with_addresses(text) for name, text in service.environment.items()}
        for name in ("KAFKA_LISTENERS", "KAFKA_CFG_LISTENERS"):
            if name in changed:
                changed[name] = re.sub(r"://(0\.0\.0\.0)?:", f"://{own}:", changed[name])
        return changed | {"OTTLA_ADMIN_LISTENER": f"{own}:{ADMIN_PORT}"}

    def with_addresses(self, text: str) -> str:
        for service in self.services:
            for name in {service.name, service.hostname}:
                text = re.sub(rf"(?<![\w.-]){re.escape(name)}(?=:\d)", self.address(service), text)
        return text

    def __enter__(self) -> Self:
        try:
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
        for process in self.processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, service: Service) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OTTLA_CONTAINER_ROOT": str(self.folder / service.name),
            **self.environment(service),
        }
        self.processes[service.name] = subprocess.Popen(
            [sys.executable, "-P", "-m", "ottla.main", "container", "run"],
            env=environment,
            stdout=(self.folder / f"{service.name}.log").open("ab"),
            stderr=subprocess.STDOUT,
        )

    def log(self, service: Service) -> str:
        return (self.folder / f"{service.name}.log").read_text()

    def run(self, where: str, *command: str) -> subprocess.CompletedProcess[str]:
        """A client has no place of its own here; names in its arguments are addresses."""
        return subprocess.run(
            [self.with_addresses(word) for word in command],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=ROOT,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        )

    def _forward(self) -> None:
        # One without listeners of its own takes all addresses, and is reached at 127.0.0.1 already.
        bound = [
            s for s in self.services if "KAFKA_LISTENERS" in s.environment or "KAFKA_CFG_LISTENERS" in s.environment
        ]
        rules = [f"{host}:{self.address(s)}:{inner}" for s in bound for host, inner in s.ports]
        if not rules:
            return
        process = self.processes["ports"] = subprocess.Popen(
            [sys.executable, "-c", FORWARDER, *rules], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"forwarding\n"
