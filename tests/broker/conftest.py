"""A node as a user would start it, one per module; ports of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.groups.inline_work import close_what_has_not_begun
from tests.broker.wire import Wire
from tests.ports import free_base_port

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Node:
    """A running `ottla dev` of one node."""

    process: subprocess.Popen[str]
    port: int
    pid: int
    dir: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def wire(self, client_id: str = "wire") -> Wire:
        return Wire(self.port, client_id=client_id)

    def create(self, topic: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic with `configs`, which have underscores for the dots of their names."""
        with self.wire() as wire:
            answer = wire.request(
                CreateTopicsRequest(
                    topics=[
                        CreatableTopic(
                            name=topic,
                            num_partitions=partitions,
                            replication_factor=1,
                            configs=[
                                CreatableTopicConfig(name=name.replace("_", "."), value=value)
                                for name, value in configs.items()
                            ],
                        )
                    ],
                    timeout_ms=10_000,
                )
            )
            assert answer.topics[0].error_code == 0, answer.topics[0]
            eventually(lambda: not self.metadata_error(topic), f"{topic} to have leaders")

    def metadata_error(self, topic: str) -> int:
        with self.wire() as wire:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
            found = wire.request(request, 12).topics[0]
            return int(found.error_code or max((p.error_code for p in found.partitions), default=0))


def eventually(condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
    """Wait until the condition holds. A node that is out of touch with the quorum closes its clients' connections: such an
    error means that it does not hold yet.
    """
    deadline = time.monotonic() + seconds
    while True:
        refused: Exception | None = None
        try:
            if condition():
                return
        except ConnectionError as error:
            refused = error
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}: {refused}"
        time.sleep(0.01)


def start_node(
    directory: Path | None = None, port: int = 0, open_files: tuple[int, int] | None = None, **properties: str
) -> Node:
    """A node with a named `directory` may be started again, so that its ports are outside of the range of outgoing connections.

    `open_files`: the soft and the hard limit of the node's descriptors.
    """
    port = port or (free_base_port() if directory is not None else 0)
    command = [sys.executable, "-P", "-m", "ottla", "dev", "--nodes", "1", "--base-port", str(port), "--json"]
    if directory is not None:
        command += ["--dir", str(directory)]
    for name, value in properties.items():
        command += ["--override", f"{name.replace('_', '.')}={value}"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -Sn {open_files[0]} && ulimit -Hn {open_files[1]} && exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, "the node did not start"
    status = json.loads(line)["nodes"][0]
    return Node(process, status["port"], status["pid"], Path(status["dir"]))


def stop_node(node: Node) -> int:
    if node.process.poll() is None:
        node.process.send_signal(signal.SIGTERM)
    return node.process.wait(30)


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    started = start_node()
    yield started
    stop_node(started)


@pytest.fixture(autouse=True)
def tasks_end_with_their_test() -> Iterator[None]:
    yield
    close_what_has_not_begun()
