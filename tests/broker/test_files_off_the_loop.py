"""File system calls for a producer run on a worker: those for first records of partitions, and for rolls."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.storage.files import OsFiles
from ottla.storage.mapped_file import OsMappedFile
from tests.broker.counted_node import CountedNode
from tests.broker.wire import Wire

PARTITIONS = 20


class FileCalls:
    """Notes the calls below partitions of `name` that use names of files or wait for the journal, and whether each was on a
    worker.
    """

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.on_workers = self.elsewhere = 0

        def counted(method: Any) -> Any:
            def call(files: OsFiles, path: str, *args: Any, **kwargs: Any) -> Any:
                if f"/{name}-" in path:
                    if threading.current_thread().name.startswith("disk"):
                        self.on_workers += 1
                    else:
                        self.elsewhere += 1
                return method(files, path, *args, **kwargs)

            return call

        for method in ("make_dirs", "create", "sync_dir", "sync_file"):
            monkeypatch.setattr(OsFiles, method, counted(getattr(OsFiles, method)))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedNode]:
    started = CountedNode(tmp_path, monkeypatch)
    yield started
    started.stop()


def create(wire: Wire, name: str, **configs: str) -> None:
    rows = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    topic = CreatableTopic(name=name, num_partitions=PARTITIONS, replication_factor=1, configs=rows)
    assert wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics[0].error_code == 0
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    deadline = time.monotonic() + 10
    while any(p.error_code for p in wire.request(asked, 12).topics[0].partitions):
        assert time.monotonic() < deadline


def produced(name: str, partitions: list[int], value: bytes = b"v") -> ProduceRequest:
    records = build_batch([(b"k", value, int(time.time() * 1000))])
    data = [PartitionProduceData(index=index, records=records) for index in partitions]
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=name, partition_data=data)])


def offsets(answer: Any) -> list[int]:
    found = answer.responses[0].partition_responses
    assert not any(each.error_code for each in found), found
    return [each.base_offset for each in found]


def test_first_records_make_no_file_on_the_loop_and_keep_their_order(
    node: CountedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node.wire() as wire:
        create(wire, "t")
        calls = FileCalls("t", monkeypatch)
        sent = [wire.send(produced("t", [index]), 9) for index in (0, 1, 0, 1)]
        assert [offsets(wire.receive(*each)) for each in sent] == [[0], [0], [1], [1]]
        assert offsets(wire.request(produced("t", list(range(PARTITIONS))), 9)) == [2, 2] + [0] * (PARTITIONS - 2)
        assert calls.elsewhere == 0
        assert calls.on_workers == 2 * PARTITIONS, "a directory and a log each"


def test_a_roll_waits_for_no_journal_on_the_loop(node: CountedNode, monkeypatch: pytest.MonkeyPatch) -> None:
    with node.wire() as wire:
        create(wire, "rolls", segment_bytes=str(1 << 20))
        assert offsets(wire.request(produced("rolls", [0], bytes(600_000)), 9)) == [0]
        syncs: list[str] = []
        sync_dir = OsFiles.sync_dir

        def noted(files: OsFiles, path: str) -> None:
            if path.endswith("/rolls-0"):
                syncs.append(threading.current_thread().name)
            sync_dir(files, path)

        monkeypatch.setattr(OsFiles, "sync_dir", noted)
        for number in range(1, 6):
            assert offsets(wire.request(produced("rolls", [0], bytes(600_000)), 9)) == [number]
        assert len(syncs) == 5 and all(name.startswith("disk") for name in syncs), syncs


def test_retention_renames_and_syncs_nothing_on_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = CountedNode(tmp_path, monkeypatch, log_retention_check_interval_ms="200")
    try:
        with node.wire() as wire:
            create(wire, "old", retention_ms="1")
            calls: list[str] = []

            def noted(name: str) -> Any:
                method = getattr(OsFiles, name)

                def call(files: OsFiles, path: str, *rest: Any) -> Any:
                    if "/old-" in path and (name != "rename" or rest[0].endswith(".deleted")):
                        calls.append(threading.current_thread().name)
                    return method(files, path, *rest)

                return call

            for name in ("rename", "sync_dir", "sync_file"):
                monkeypatch.setattr(OsFiles, name, noted(name))
            flush = OsMappedFile.flush
            monkeypatch.setattr(
                OsMappedFile,
                "flush",
                lambda mapped: (
                    calls.append(threading.current_thread().name) if "/old-" in mapped.path else None,
                    flush(mapped),
                ),
            )
            assert offsets(wire.request(produced("old", list(range(PARTITIONS))), 9)) == [0] * PARTITIONS
            deadline = time.monotonic() + 30
            while len([*tmp_path.glob("old-*/*.log.deleted")]) < PARTITIONS:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert len(calls) >= 3 * PARTITIONS, "a sync, a log and its indexes each"
            assert all(name.startswith("disk") for name in calls), calls
    finally:
        node.stop()
