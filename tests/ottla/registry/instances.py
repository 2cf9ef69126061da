"""Instances of the registry, started as a user does it, and clients that register schemas at any of them."""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import pytest

from ottla.registry.client import MEDIA_TYPE, RegistryClient, RegistryFailed
from ottla.registry.rest.forwarding import FORWARDED
from tests.ottla.conftest import ROOT

NUMBERS = itertools.count()
STOP_S = 60
#: Within this time a leader is elected, or a schema registered, on a busy machine.
WAIT_S_MAX = 90
#: The session of instances that a test kills. The brokers must allow it: group.min.session.timeout.ms.
SHORT_SESSION_MS = 3_000
#: The session of the others: a pause of a busy machine must not end the leader's session.
SESSION_MS = 30_000
#: Codes of errors that may be gone at a client's next attempt begin with these digits.
FOR_A_MOMENT = 500
#: The pause of a client that got no response, as in stock clients: six that retry at once would take the processors from an
#: election.
AGAIN_S = 0.1


@dataclass
class Instance:
    """A process of `ottla registry`."""

    process: subprocess.Popen[str]
    url: str

    @property
    def client(self) -> RegistryClient:
        return RegistryClient(self.url, timeout_s=60)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

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

    bootstrap: str
    topic: str = field(default_factory=lambda: f"_schemas-{os.getpid()}-{next(NUMBERS)}")
    started: list[Instance] = field(default_factory=list)
    session_ms: int = SESSION_MS
    #: The target of the instances' standard error; None means that of the test.
    errors: IO[str] | None = None

    @property
    def running(self) -> list[Instance]:
        return [each for each in self.started if each.is_running]

    @property
    def urls(self) -> list[str]:
        return [each.url for each in self.running]

    def start(self, *arguments: str) -> Instance:
        command = [sys.executable, "-m", "ottla", "registry", "--listen", "127.0.0.1:0", "-b", self.bootstrap]
        command += [
            "--topic",
            self.topic,
            "--group",
            f"{self.topic}-group",
            "--session-timeout-ms",
            str(self.session_ms),
        ]
        process = subprocess.Popen(
            [*command, *arguments], stdout=subprocess.PIPE, stderr=self.errors, text=True, cwd=ROOT
        )
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], WAIT_S_MAX)[0]:
            process.kill()
            raise AssertionError(f"an instance serves nothing {WAIT_S_MAX} s after its start")
        line = process.stdout.readline()
        assert line.startswith("schema registry at "), f"it ended with {process.wait(STOP_S)}"
        self.started.append(Instance(process, line.split()[-1]))
        return self.started[-1]

    def at_least(self, count: int) -> list[Instance]:
        """Start the missing ones of this many instances, and return all that run."""
        while len(self.running) < count:
            self.start()
        return self.running

    def leader(self) -> tuple[Instance, list[Instance]]:
        """Return the instance that leads, and the others. Only the leader accepts a write that must not be forwarded."""
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            for one in self.running:
                if _leads(one.url):
                    return one, [other for other in self.running if other is not one]
        raise AssertionError("no instance leads")

    def stop(self) -> None:
        for each in self.running:
            each.process.send_signal(signal.SIGTERM)
        assert [each.process.wait(STOP_S) in (0, -signal.SIGKILL) for each in self.started].count(False) == 0


def _leads(url: str) -> bool:
    body = json.dumps({"compatibility": "NONE"}).encode()
    try:
        headers = {FORWARDED: "true", "Content-Type": MEDIA_TYPE}
        request = urllib.request.Request(f"{url}/config/probe", body, headers, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as fault:
        assert json.loads(fault.read())["error_code"] // 100 == FOR_A_MOMENT
        return False
    except OSError:  # it is starting or ending
        return False
    return True


def schema(index: int) -> dict[str, str]:
    """Return a schema that no other index has."""
    return {"schema": json.dumps({"type": "fixed", "name": f"F{index}", "size": index + 1})}


class Writers:
    """Clients that register their own schemas, beginning with a first number.

    Each uses any instance, and retries until it has an id.
    """

    def __init__(self, urls: Callable[[], Sequence[str]], clients: int, first: int = 0, end: int = sys.maxsize) -> None:
        self._urls = urls
        self._stopped = threading.Event()
        self._moved = threading.Condition()
        #: The id of each schema, and when its last attempt without a response ended, in ms since the epoch.
        self.given: dict[int, int] = {}
        self.failed_ms: dict[int, float] = {}
        self.problems: list[str] = []
        self._threads = [
            threading.Thread(target=self._write, args=(range(first + number, end, clients),), daemon=True)
            for number in range(clients)
        ]
        for thread in self._threads:
            thread.start()

    def wait(self, count: int) -> float:
        """Wait until this many more schemas have an id. Return the seconds that it took."""
        began = time.monotonic()
        with self._moved:
            wanted = len(self.given) + count
            assert self._moved.wait_for(lambda: len(self.given) >= wanted or self.problems, WAIT_S_MAX), (
                "no schema is registered"
            )
        return time.monotonic() - began

    def join(self) -> None:
        """Wait until all schemas have an id."""
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        """End each client after the schema that it is about to register."""
        self._stopped.set()
        self.join()

    def _write(self, indexes: range) -> None:
        chance = random.Random(indexes.start)
        for index in indexes:
            if self._stopped.is_set():
                return
            schema_id = self._register(index, chance)
            with self._moved:
                if schema_id is None:
                    self.problems.append(f"schema {index} was not registered in {WAIT_S_MAX} s")
                else:
                    self.given[index] = schema_id
                self._moved.notify_all()

    def _register(self, index: int, chance: random.Random) -> int | None:
        until = time.monotonic() + WAIT_S_MAX
        while time.monotonic() < until:
            url = chance.choice(self._urls() or [""])
            try:
                row: Any = RegistryClient(url, timeout_s=20).request(
                    "POST", f"/subjects/s{index}/versions", schema(index)
                )
                return int(row["id"])
            except RegistryFailed:
                self.failed_ms[index] = time.time() * 1000
                time.sleep(AGAIN_S)
        return None


def judge(writers: Writers, fresh: Instance, first_id: int = 1) -> list[str]:
    """Return what is wrong with the ids, as an instance sees it that has only the topic."""
    problems, ids = list(writers.problems), Counter(writers.given.values())
    if sorted(ids.elements()) != list(range(first_id, first_id + len(writers.given))):
        doubled = sorted(each for each, times in ids.items() if times > 1)
        problems.append(f"{len(writers.given)} schemas have the ids {min(ids)} to {max(ids)}; given twice: {doubled}")
    for index, schema_id in sorted(writers.given.items()):
        found: Any = fresh.ask("GET", f"/schemas/ids/{schema_id}")
        if json.loads(found["schema"])["name"] != f"F{index}":
            problems.append(f"id {schema_id} of schema {index} is that of {found['schema']}")
        if (versions := fresh.ask("GET", f"/subjects/s{index}/versions")) != [1]:
            problems.append(f"schema {index} was registered once, and has the versions {versions}")
    return problems[:20]
