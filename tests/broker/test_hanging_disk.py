"""One of two disks hangs in every call (a controller card that resets, a network volume that is gone), or fails: the other one goes on."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.storage.errors import StorageFailure
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Log
from ottla.storage.mapped_file import OsMappedFile
from tests.broker.counted_node import CountedNode
from tests.broker.test_files_off_the_loop import PARTITIONS, create, offsets, produced
from tests.broker.wire import Wire

WAITING_CALLS = ("sync_dir", "sync_file", "write_atomic", "rename", "remove", "remove_tree", "create", "make_dirs")
RETENTION_CHECK_MS = 100


class HangingDisk:
    """Makes file system calls below `path` wait until `repair`. Calls on the event loop are noted instead, because there must
    be none.

    After `fail` all calls fail.
    """

    def __init__(self, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.on_loop: list[str] = []
        self.waiting: list[str] = []
        self._fails = False
        self._repaired = threading.Event()
        self._repaired.set()
        for name in WAITING_CALLS:
            monkeypatch.setattr(OsFiles, name, self._hanging(name, getattr(OsFiles, name), lambda files, path: path))
        flush = OsMappedFile.flush
        monkeypatch.setattr(OsMappedFile, "flush", self._hanging("flush", flush, lambda mapped, *_: mapped.path))

    def fail(self) -> None:
        self._fails = True

    def hang(self) -> None:
        self._repaired.clear()

    def repair(self) -> None:
        self._repaired.set()

    def _hanging(self, name: str, method: Callable[..., Any], path_of: Callable[..., str]) -> Callable[..., Any]:
        def call(owner: Any, *args: Any, **kwargs: Any) -> Any:
            path = path_of(owner, *args[:1])
            if path.startswith(self.path) and self._fails:
                raise StorageFailure(path, OSError(errno.EIO, "the disk is gone"))
            if path.startswith(self.path) and not self._repaired.is_set():
                if threading.current_thread().name == "node":
                    self.on_loop.append(f"{name} {path}")
                else:
                    self.waiting.append(f"{name} {path}")
                    assert self._repaired.wait(60)
            return method(owner, *args, **kwargs)

        return call


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[CountedNode]:
    monkeypatch.setattr("ottla.broker.scheduled_tasks.FLUSH_LOOK_MS_MAX", 50)
    started = CountedNode(
        tmp_path,
        monkeypatch,
        log_dirs=f"{tmp_path}/a,{tmp_path}/b",
        metadata_log_dir=f"{tmp_path}/a",
        log_retention_check_interval_ms=str(RETENTION_CHECK_MS),
        log_segment_delete_delay_ms="0",
        replica_high_watermark_checkpoint_interval_ms="100",
        log_flush_offset_checkpoint_interval_ms="100",
    )
    yield started
    started.stop()


def logs_in(node: CountedNode, directory: str, topic: str) -> list[Log]:
    return [
        log for log in node.server.logs.open if log.partition_dir.log_dir.endswith(directory) and log.topic == topic
    ]


def eventually(condition: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def delete_records(wire: Wire, topic: str, index: int, offset: int) -> int:
    asked = DeleteRecordsPartition(partition_index=index, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    found = wire.request(DeleteRecordsRequest(topics=topics, timeout_ms=10_000)).topics[0].partitions[0]
    assert found.error_code == 0
    return int(found.low_watermark)


def timed_out(wire: Wire, topic: str, index: int) -> bool:
    """Return whether DeleteRecords times out for a partition whose disk hangs."""
    asked = DeleteRecordsPartition(partition_index=index, offset=1)
    topics = [DeleteRecordsTopic(name=topic, partitions=[asked])]
    found = wire.request(DeleteRecordsRequest(topics=topics, timeout_ms=300)).topics[0].partitions[0]
    return (found.error_code, found.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def partitions_on_each(node: CountedNode, wire: Wire) -> tuple[list[int], list[int]]:
    """Return the partitions of topic `synced` on each disk, after records were written to it and to topic `goes`."""
    create(wire, "synced", flush_messages="1", segment_bytes=str(1 << 20), file_delete_delay_ms="0")
    create(wire, "goes")
    for topic in ("synced", "goes"):
        assert offsets(wire.request(produced(topic, list(range(PARTITIONS))), 9)) == [0] * PARTITIONS
    good, bad = ([log.partition for log in logs_in(node, directory, "synced")] for directory in ("/a", "/b"))
    assert min(len(good), len(bad)) >= PARTITIONS // 4
    return good, bad


def other_disk_goes_on(wire: Wire, good: list[int], files: Path) -> None:
    """Check that the other disk is flushed, rolled, retained and checkpointed, and that a deleted topic's files are removed
    from it.
    """
    gone = [DeleteTopicState(name="goes")]
    assert wire.request(DeleteTopicsRequest(topics=gone, timeout_ms=10_000)).responses[0].error_code == 0
    for number in range(1, 4):  # each record fills a segment
        assert offsets(wire.request(produced("synced", good, bytes(600_000)), 9)) == [number] * len(good)
    assert delete_records(wire, "synced", good[0], 2) == 2
    partition = files / f"synced-{good[0]}"
    eventually(lambda: not [*files.glob("goes-*")], "the deleted topic's files are unlinked")
    eventually(lambda: len([*partition.glob("*.log*")]) == 2, "retention has removed two segments")
    checkpoint = files / "replication-offset-checkpoint"
    eventually(lambda: f"synced {good[0]} 4\n" in checkpoint.read_text(), "the high watermarks are written")


def test_flushes_rolls_retention_and_removal_go_on_beside_a_disk_that_hangs(
    node: CountedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk(f"{tmp_path}/b", monkeypatch)
    with node.wire() as wire, node.wire() as hanging:
        good, bad = partitions_on_each(node, wire)
        disk.hang()
        asked = hanging.send(produced("synced", bad), 9)
        eventually(lambda: disk.waiting, "the other disk is in use")
        other_disk_goes_on(wire, good, tmp_path / "a")
        assert [*Path(f"{tmp_path}/b").glob("goes-*")], "of what hangs nothing has changed"
        assert timed_out(wire, "synced", bad[0])
        assert disk.on_loop == []

        disk.repair()
        assert offsets(hanging.receive(*asked)) == [1] * len(bad)
        eventually(lambda: not [*Path(f"{tmp_path}/b").glob("goes-*")], "it takes up what it had left")


def test_flushes_rolls_retention_and_removal_go_on_beside_a_disk_that_fails(
    node: CountedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk(f"{tmp_path}/b", monkeypatch)
    with node.wire() as wire:
        good, bad = partitions_on_each(node, wire)
        disk.fail()
        refused = wire.request(produced("synced", bad), 9).responses[0].partition_responses
        assert {each.error_code for each in refused} <= {
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        }
        other_disk_goes_on(wire, good, tmp_path / "a")
        assert [directory.online for directory in node.server.logs.directories] == [True, False]


def test_a_topic_is_created_while_a_checkpoint_of_its_disk_is_being_written(
    node: CountedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = HangingDisk(f"{tmp_path}/b", monkeypatch)
    with node.wire() as wire:
        create(wire, "kept")
        assert offsets(wire.request(produced("kept", list(range(PARTITIONS))), 9)) == [0] * PARTITIONS
        disk.hang()
        assert timed_out(wire, "kept", logs_in(node, "/b", "kept")[0].partition)
        eventually(lambda: any("log-start-offset-checkpoint" in call for call in disk.waiting), "its worker to begin")
        create(wire, "later")
        assert logs_in(node, "/b", "later"), "some of its partitions are on the disk that hangs"
        there = [log.partition for log in logs_in(node, "/a", "later")]
        assert offsets(wire.request(produced("later", there), 9)) == [0] * len(there)
        assert disk.on_loop == []
        disk.repair()
