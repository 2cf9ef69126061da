"""A node whose disk has lost something: its answers to clients, partition by partition."""

from __future__ import annotations

from pathlib import Path

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.conftest import Node, start_node, stop_node
from tests.broker.fetch.test_handler import NAMED, append, fetch


def error_of_fetch(node: Node, topic: str, offset: int) -> int:
    with node.wire() as wire:
        return int(wire.request(fetch(topic, offset), NAMED).responses[0].partitions[0].error_code)


def file_of(directory: Path, topic: str, pattern: str) -> Path:
    return next(iter(sorted(directory.rglob(f"{topic}-0/{pattern}"))))


def damage(path: Path, position: int, what: bytes) -> None:
    data = bytearray(path.read_bytes())
    data[position : position + len(what)] = what
    path.write_bytes(data)


def test_damage_is_answered_for_its_own_partition_and_the_node_starts(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    for topic in ("whole", "bent", "closed"):
        node.create(topic, segment_bytes="1048576")
        append(node, topic, b"x" * 600_000, b"y" * 600_000, b"z" * 600_000)
    stop_node(node)
    damage(file_of(tmp_path, "bent", "*.log"), 8, b"\xff\xff\xff\xf4")  # the length of its first batch is -12
    damage(file_of(tmp_path, "closed", "partition.metadata"), 0, bytes(20))
    node = start_node(tmp_path)
    try:
        assert error_of_fetch(node, "whole", 0) == ErrorCode.NONE
        assert error_of_fetch(node, "bent", 0) == ErrorCode.CORRUPT_MESSAGE
        assert error_of_fetch(node, "bent", 2) == ErrorCode.NONE
        assert error_of_fetch(node, "closed", 0) == ErrorCode.KAFKA_STORAGE_ERROR
        append(node, "bent", b"and on")
    finally:
        stop_node(node)


def test_records_are_not_called_deleted_while_a_crash_could_bring_them_back(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    try:
        node.create("kept")
        append(node, "kept", b"1", b"2", b"3")
        checkpoint = next(tmp_path.rglob("recovery-point-offset-checkpoint"), None)
        data = checkpoint.parent if checkpoint else file_of(tmp_path, "kept", "*.log").parents[1]
        (data / "log-start-offset-checkpoint.tmp").mkdir()  # a file of this name cannot be written any more
        with node.wire() as wire:
            asked = DeleteRecordsTopic(name="kept", partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])
            answer = wire.request(DeleteRecordsRequest(topics=[asked], timeout_ms=5000))
        assert answer.topics[0].partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    finally:
        stop_node(node)
