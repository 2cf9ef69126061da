"""The cost that the largest request of each API has for a node: `python -m tests.fuzz.costs [API ...]`, the second half of `make fuzz`.

The node runs inside of this process, on a thread, with real sockets and files. For each request these are measured:

    turn     CPU time of the longest turn of the event loop
    memory   by how much the process grew, above the request itself

and the judge refuses a turn of more than TURN_MS_MAX, memory of more than MEMORY_PER_BYTE_MAX times the request's bytes and
MEMORY_FREE_BYTES, and a failure that a handler logs. `--table` writes the table of benchmarks/scale-log.md, a row for each API.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.server.network.limits import OTHER_REQUEST_BYTES_MAX
from tests.broker.threaded_node import ThreadedNode
from tests.broker.wire import Wire
from tests.fuzz.judge import memory_of
from tests.fuzz.largest import GROUP, TOPIC, Shape, largest, shapes

START_S_MAX = 60
ANSWER_S_MAX = 90
#: The real limit is 50 ms, but CPU time is up to two and a half times as long while other processes use the same caches.
TURN_MS_MAX = 125.0
#: A follower's session begins with all of its partitions, at 4 us each (OTHER_LIMITS of the decoders). A request that only
#: nodes may send is read in one turn before it is rejected.
TURN_MS_MAX_OF = {ApiKey.FETCH: 400.0, ApiKey.ALTER_PARTITION: 500.0, ApiKey.ASSIGN_REPLICAS_TO_DIRS: 500.0}
MEMORY_PER_BYTE_MAX = 10
MEMORY_FREE_BYTES = 32 << 20
#: The APIs that only a controller's listener serves.
OF_CONTROLLERS = {
    ApiKey.VOTE, ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.END_QUORUM_EPOCH, ApiKey.ALTER_PARTITION, ApiKey.ENVELOPE, ApiKey.FETCH_SNAPSHOT,
    ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT, ApiKey.ALLOCATE_PRODUCER_IDS, ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS, ApiKey.UPDATE_RAFT_VOTER,
}  # fmt: skip


class TimedLoop(asyncio.SelectorEventLoop):
    """An event loop that keeps the CPU time of its longest turn."""

    longest_ns = 0
    _ended_ns = 0

    def _run_once(self) -> None:
        super()._run_once()
        now_ns = time.thread_time_ns()
        self.longest_ns = max(self.longest_ns, now_ns - (self._ended_ns or now_ns))
        self._ended_ns = now_ns


class TimedNode(ThreadedNode):
    """A node that is broker and controller, with one topic and all coordinators."""

    def __init__(self, directory: Path) -> None:
        self.loop = TimedLoop()
        super().__init__(
            directory,
            self.loop,
            share_coordinator_state_topic_replication_factor="1",
            share_coordinator_state_topic_min_isr="1",
            auto_create_topics_enable="false",
        )
        self.topic_id = self._ready()

    def _ready(self) -> bytes:
        """Create the topic, and wait until the coordinators answer. Return the id of the topic."""
        with Wire(self.port) as wire:
            topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
            wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
            for kind, key in enumerate((GROUP, GROUP, f"{GROUP}:{'A' * 22}:0")):
                asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                _until(partial(_is_available, wire, asked))
            _until(lambda: wire.request(ListGroupsRequest()).error_code == 0)
            return bytes(wire.request(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics[0].topic_id)


def _is_available(wire: Wire, asked: FindCoordinatorRequest) -> bool:
    code = wire.request(asked).coordinators[0].error_code
    return bool(code != ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S_MAX
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Cost(NamedTuple):
    shape: Shape
    turn_ms: float
    sent: int
    answered: int
    grown: int

    def wrong(self) -> str | None:
        """Return the cost that exceeds its limit, as a sentence, or None."""
        turn_ms_max = TURN_MS_MAX_OF.get(self.shape.key, TURN_MS_MAX)
        if self.turn_ms > turn_ms_max:
            return f"{self.shape}: a turn of {self.turn_ms:.0f} ms of CPU for {self.sent} bytes, {turn_ms_max:.0f} are allowed"
        # The request is in this process twice, and the response once, while it waits for the client.
        if self.grown > MEMORY_PER_BYTE_MAX * self.sent + self.answered + MEMORY_FREE_BYTES:
            return f"{self.shape}: {self.grown / 1e6:.0f} MB of memory for {self.sent} bytes"
        return None


def cost_of(node: TimedNode, shape: Shape) -> Cost:
    frame = largest(shape, node.topic_id, OTHER_REQUEST_BYTES_MAX)
    answered = 0

    def ask() -> None:
        nonlocal answered
        with Wire(node.controller_port if shape.key in OF_CONTROLLERS else node.port) as wire:
            wire.sock.settimeout(ANSWER_S_MAX)
            node.loop.longest_ns = 0
            wire.sock.sendall(struct.pack(">i", len(frame)))
            wire.sock.sendall(frame)
            answered = _receive(wire.sock)
            with Wire(node.port) as other:  # work after the response belongs to the request, too
                other.request(ListGroupsRequest())

    grown = memory_of(ask)
    return Cost(shape, node.loop.longest_ns / 1e6, len(frame), answered, grown)


def _receive(sock: socket.socket) -> int:
    """Return the size of the response, which is dropped, or 0 if the connection was closed instead."""
    buffer = bytearray(65_536)
    try:
        if sock.recv_into(buffer, 4, socket.MSG_WAITALL) < 4:
            return 0
        left = size = int.from_bytes(buffer[:4], "big")
        while left:
            count = sock.recv_into(buffer, min(left, len(buffer)))
            if not count:
                return 0
            left -= count
    except ConnectionError:
        return 0
    return size


class Failures(logging.Handler):
    """Failures that the node logs, which are bugs of handlers."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.seen: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self.seen.append(f"{record.getMessage():.200}: {record.exc_info[1]!r:.200}")


def measured(directory: Path, wanted: Iterable[Shape], found: Callable[[str], None]) -> Iterator[Cost]:
    """Yield the cost of each request. Call `found` with each error."""
    failures = Failures()
    logging.getLogger().addHandler(failures)
    gc.collect()
    gc.freeze()  # as a node does at its start: else a collection looks at the heap of other tests
    node = TimedNode(directory)
    try:
        for shape in wanted:
            cost = cost_of(node, shape)
            wrong = cost.wrong()
            if wrong is not None:
                cost = min(
                    cost, cost_of(node, shape), key=lambda each: each.turn_ms
                )  # a garbage collection does not count
                wrong = cost.wrong()
            for text in [*failures.seen, *([] if wrong is None else [wrong])]:
                found(text)
            failures.seen.clear()
            yield cost
    finally:
        node.stop()
        gc.unfreeze()
        logging.getLogger().removeHandler(failures)


def table(costs: Iterable[Cost]) -> Iterator[str]:
    """Yield the rows of the table: the worst turn and the most memory for each API."""
    by_api: dict[ApiKey, list[Cost]] = {}
    for cost in costs:
        by_api.setdefault(cost.shape.key, []).append(cost)
    yield "| API | its list | bytes | longest turn, ms | most memory, MB | for each byte |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for key, found in by_api.items():
        worst = max(found, key=lambda each: each.turn_ms)
        most = max(found, key=lambda each: each.grown)
        memory = f"{most.grown / 1e6:.0f} | {most.grown / most.sent:.1f}" if most.grown > 1e6 else "below 1 | "
        yield f"| {key.name} | {worst.shape.text} | {worst.sent:,} | {worst.turn_ms:.0f} | {memory} |"


def main(words: list[str]) -> int:
    wanted = [shape for shape in shapes() if not (names := set(words) - {"--table"}) or shape.key.name in names]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        costs = []
        for cost in measured(Path(directory), wanted, wrong.append):
            costs.append(cost)
            if "--table" not in words:
                print(
                    f"{cost.turn_ms:6.0f} ms {cost.sent:9} bytes {cost.answered:9} answered {cost.grown / 1e6:6.1f} MB  {cost.shape}",
                    flush=True,
                )
    if "--table" in words:
        print("\n".join(table(costs)))
    print(f"{len(costs)} requests, {len(wrong)} findings", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
