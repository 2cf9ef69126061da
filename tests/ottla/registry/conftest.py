"""Instances of the registry, started as a user starts them, over the node of the command line's tests."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ottla.registry.client import RegistryClient, RegistryFailed
from tests.ottla.conftest import ROOT, Cli

NUMBERS = itertools.count()
STOP_S = 60


@dataclass
class Instance:
    """A process of `ottla registry`."""

    process: subprocess.Popen[str]
    url: str

    @property
    def client(self) -> RegistryClient:
        return RegistryClient(self.url, timeout_s=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_S)

    def ask(self, method: str, path: str, body: object | None = None) -> object:
        return self.client.request(method, path, body)

    def rejected(self, method: str, path: str, body: object | None = None) -> int:
        """The error code of a request that must be rejected."""
        with pytest.raises(RegistryFailed) as caught:
            self.client.request(method, path, body)
        return caught.value.code


@dataclass
class Registries:
    """Instances of one topic and one group."""

    cli: Cli
    folder: Path
    topic: str = field(default_factory=lambda: f"_schemas-{os.getpid()}-{next(NUMBERS)}")
    running: list[Instance] = field(default_factory=list)

    def start(self, *arguments: str) -> Instance:
        command = [sys.executable, "-m", "ottla", "registry", "--listen", "127.0.0.1:0", "-b", self.cli.bootstrap]
        command += ["--topic", self.topic, "--group", f"{self.topic}-group", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("schema registry at "), f"it ended with {process.wait(STOP_S)}"
        self.running.append(Instance(process, line.split()[-1]))
        return self.running[-1]

    def stop(self) -> None:
        for each in self.running:
            if each.process.poll() is None:
                each.process.send_signal(signal.SIGTERM)
        assert [each.process.wait(STOP_S) in (0, -signal.SIGKILL) for each in self.running].count(False) == 0


@pytest.fixture
def registries(cli: Cli, tmp_path: Path) -> Iterator[Registries]:
    made = Registries(cli, tmp_path)
    yield made
    made.stop()


@pytest.fixture(scope="module")
def registry(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One instance for the tests of a module, which take subjects of their own."""
    made = Registries(cli, tmp_path_factory.mktemp("registry"))
    yield made.start()
    made.stop()
