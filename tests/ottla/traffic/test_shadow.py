"""`ottla shadow`: clients get the first cluster's responses, whatever the second cluster does, and differences are reported."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.server.world import RealWorld
from ottla.testing import Cluster
from ottla.traffic import recorder as recording_module
from ottla.traffic.masking import Masking
from ottla.traffic.recorder import Recorder, Spool
from tests.cluster.shared import STEADY, make_topics
from tests.ottla.conftest import ROOT, Cli, command
from tests.ottla.traffic.test_recorder import SlowDisk

pytestmark = pytest.mark.timeout(120)
END_S = 60
#: A replay alone waits for a response for 60 s.
HUNG_END_S_MAX = 20


class Shadowed:
    """A run of the command: the address for clients, and at its end the output."""

    def __init__(self, process: subprocess.Popen[str], said: str, address: str) -> None:
        self.address = address
        self.out = self.err = ""
        self.code = -1
        self._process = process
        self._said = said

    def end(self) -> None:
        """Interrupt it, and wait until it has ended."""
        if self.code < 0:
            self._process.send_signal(signal.SIGINT)
            self.out, rest = self._process.communicate(timeout=END_S)
            self.err, self.code = self._said + rest, self._process.returncode


@contextmanager
def shadowing(to: str, shadow: str, catch_up: int = END_S - 15) -> Iterator[Shadowed]:
    addresses = ("--listen", "127.0.0.1:0", "--to", to, "--shadow", shadow)
    words = command("shadow", *addresses, "-o", "json", "--catch-up", str(catch_up))
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None and process.stdout is not None
        said = ""
        while not (found := re.search(r"clients connect to (\S+)\n", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        run = Shadowed(process, said, found[1])
        try:
            yield run
        finally:
            run.end()


@pytest.fixture(scope="module")
def second() -> Iterator[Cluster]:
    with Cluster(1, **STEADY) as cluster:
        yield cluster


def traffic(address: str, topic: str) -> None:
    """Write and read, in a group."""
    admin = AdminClient({"bootstrap.servers": address})
    make_topics(admin, NewTopic(topic, 1))
    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, b"value %d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": address, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found = [consumer.poll(30) for _ in range(10)]
    assert all(message is not None and message.error() is None for message in found)
    consumer.close()


def test_the_second_cluster_gets_the_same_and_answers_alike(cli: Cli, second: Cluster) -> None:
    with shadowing(cli.bootstrap, second.bootstrap) as run:
        traffic(run.address, "shadowed")
    rows = {row["api"]: row for row in map(json.loads, run.out.splitlines())}
    assert {"CreateTopics", "Produce", "Fetch", "JoinGroup", "LeaveGroup"} <= rows.keys()
    assert run.code == 0, run.err
    assert not any(row["different"] for row in rows.values())
    assert [record.value for record in second.records("shadowed")] == [b"value %d" % number for number in range(10)]


def test_a_difference_is_said_at_once_with_its_api(cli: Cli, second: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": second.bootstrap})
    admin.create_topics([NewTopic("there-already", 1)])["there-already"].result(30)
    with shadowing(cli.bootstrap, second.bootstrap) as run:
        traffic(run.address, "there-already")
    assert run.code == 1
    assert re.search(r"CreateTopics v\d+ .*errorCode: recorded 0, got 36", run.err)


def test_it_ends_soon_although_the_second_cluster_does_not_answer(cli: Cli, second: Cluster) -> None:
    with shadowing(cli.bootstrap, second.bootstrap, catch_up=1) as run:
        second.pause(1)
        try:
            traffic(run.address, "unanswered")
            begin = time.monotonic()
        finally:
            run.end()
            second.resume(1)
    assert time.monotonic() - begin < HUNG_END_S_MAX
    assert run.code == 1
    assert re.search(r"\n[1-9]\d* responses were not compared within 1 s after the end\n$", run.err), run.err


def test_clients_go_on_without_a_second_cluster(cli: Cli) -> None:
    with shadowing(cli.bootstrap, "127.0.0.1:1") as run:
        for topic in ("alone", "alone-too"):
            traffic(run.address, topic)
    assert run.code == 1
    assert "cannot connect to 127.0.0.1:1" in run.err
    # All of it fits into the pipe of a process that ends late.
    assert run.err.count("the shadow is dropped, clients go on: its process has ended") <= 1


async def test_a_shadow_that_is_too_far_behind_is_dropped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_module, "SPOOL_BYTES_MAX", 1000)
    real = RealWorld(asyncio.get_running_loop())
    disk, failures = SlowDisk(), list[OSError]()
    spool = Spool(real.world, disk, failures.append)
    made = Recorder(real.world.clock, spool, Masking(), is_whole=True)
    for number in range(10):
        made.request(1, 500, 0, number, bytes(400))
        await asyncio.sleep(0)
    assert len(failures) == 1 and "behind" in str(failures[0])
    disk.may_write.set()
    await spool.close()
    await real.tasks.close()
    await real.close()
    assert made.frames == 3
