"""The log cleaner in a running node: its effects on clients, the topics that it leaves alone, and the end of its process."""

from __future__ import annotations

import os
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.batch import iter_batches
from ottla.protocol.records.builder import build_batch, pack_batch
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.wire import Wire
from tests.ports import free_ports


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    started: list[Node] = []
    yield started
    for node in started:
        stop_node(node)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce(wire: Wire, topic: str, records: bytes) -> int:
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=records)])
    answer = wire.request(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data]), 9)
    found = answer.responses[0].partition_responses[0]
    assert not found.error_code, found
    return int(found.base_offset)


def fill(wire: Wire, topic: str, rounds: int = 20, rows: int = 50) -> None:
    """Write rounds of the same keys. segment.ms of 1 s seals most rounds by their timestamps."""
    began = now_ms() - 600_000
    for i in range(rounds):
        records = [(b"k%d" % row, b"%d" % i, began + 5000 * i) for row in range(rows)]
        produce(wire, topic, build_batch(records))


def values(wire: Wire, topic: str, offset: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    found: list[tuple[int, bytes | None, bytes | None]] = []
    while True:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(max_bytes=1 << 20, topics=[FetchTopic(topic=topic, partitions=[partition])])
        batches = list(iter_batches(wire.request(request, 11).responses[0].partitions[0].records or b""))
        if not batches:
            return found
        found += [(record.offset, record.key, record.value) for batch in batches for record in batch.records()]
        offset = batches[-1].next_offset


def children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            found += map(int, (task / "children").read_text().split())
    return found


def alter(wire: Wire, topic: str, name: str, value: str) -> None:
    resource = AlterConfigsResource(
        resource_type=2, resource_name=topic, configs=[AlterableConfig(name=name, config_operation=0, value=value)]
    )
    answer = wire.request(IncrementalAlterConfigsRequest(resources=[resource]))
    assert not answer.responses[0].error_code, answer


def test_a_compacted_topic_is_read_as_its_last_values_and_no_process_is_left(nodes: list[Node], tmp_path: Path) -> None:
    node = start_node(tmp_path, log_cleaner_backoff_ms="100")
    nodes.append(node)
    node.create("c", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    assert not children(node.pid), "an idle node has no process beside it"
    with node.wire() as wire:
        fill(wire, "c")
        eventually(lambda: len(values(wire, "c")) <= 2 * 50, "the older values to go")
        last = {key: value for _, key, value in values(wire, "c")}
        assert last == {b"k%d" % row: b"19" for row in range(50)}
        eventually(lambda: not children(node.pid), "the cleaner's process to end")
    line = re.compile(r"Log cleaner pass over \S+/c-0 took \d+ ms")
    eventually(
        lambda: line.search((node.dir / "server.log").read_text()), "the line about it, which is written with others"
    )


def test_a_batch_that_cannot_be_cleaned_stops_its_partition_only(nodes: list[Node], tmp_path: Path) -> None:
    (admin,) = free_ports(1)
    node = start_node(tmp_path, log_cleaner_backoff_ms="100", ottla_admin_listener=f"127.0.0.1:{admin}")
    nodes.append(node)
    node.create("bad", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    node.create("good", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    unreadable = pack_batch(
        b"\xff" * 20,  # no record, after a valid header
        base_offset=0,
        leader_epoch=-1,
        attributes=0,
        last_offset_delta=0,
        base_timestamp=now_ms() - 700_000,
        max_timestamp=now_ms() - 700_000,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=1,
    )
    with node.wire() as wire:
        produce(wire, "bad", unreadable)
        fill(wire, "bad")
        alter(wire, "bad", "cleanup.policy", "compact")

        def uncleanable() -> bool:
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics") as answer:
                text = answer.read().decode()
            return any(
                line.startswith("kafka_log_logcleanermanager_uncleanable_partitions_count{") and line.endswith(" 1.0")
                for line in text.splitlines()
            )

        eventually(uncleanable, "the partition to count as one that cannot be cleaned")
        fill(wire, "good")
        eventually(lambda: len(values(wire, "good")) <= 2 * 50, "the other topic to be compacted")
        assert len(values(wire, "bad", 1)) == 20 * 50


@pytest.mark.chaos
def test_kill_9_in_the_middle_of_a_pass_leaves_no_process_and_no_half_of_a_segment(
    nodes: list[Node], tmp_path: Path
) -> None:
    node = start_node(tmp_path, log_cleaner_backoff_ms="100", log_cleaner_io_max_bytes_per_second="2000")
    nodes.append(node)
    node.create("c", cleanup_policy="compact", segment_ms="1000", min_cleanable_dirty_ratio="0.01")
    with node.wire() as wire:
        fill(wire, "c")
    eventually(lambda: children(node.pid), "a pass to begin")
    (worker,) = children(node.pid)
    os.kill(node.pid, signal.SIGKILL)
    eventually(lambda: not Path(f"/proc/{worker}").exists(), "the process to end with the node")
    stop_node(node)
    again = start_node(tmp_path, log_cleaner_backoff_ms="100")
    nodes.append(again)
    with again.wire() as wire:
        eventually(lambda: len(values(wire, "c")) <= 2 * 50, "the older values to go")
        assert {key: value for _, key, value in values(wire, "c")} == {b"k%d" % row: b"19" for row in range(50)}
    eventually(lambda: not list(tmp_path.rglob("*.swap")), "no half of a segment, but that of a pass under way")
