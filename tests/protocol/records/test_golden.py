"""Batches of Apache Kafka 4.3.1 and librdkafka are read here, and Apache Kafka reads ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.protocol.records.batch import BatchView, check_batch
from ottla.protocol.records.builder import build_batch, rebuild_batch
from ottla.protocol.records.compression import CODEC_IDS, CODECS
from ottla.protocol.records.control import ControlType, control_batch, control_type, end_txn_batch, end_txn_marker
from ottla.protocol.records.record import NewRecord
from tests.needs import needs_apache_kafka
from tests.protocol.records.golden_batches import JAVA_PROGRAM, LONG_ROWS, PLAIN_ROWS, TIME, load, moved
from tools import apache_kafka

KAFKA = load("apache-kafka-4.3.1")
LIBRDKAFKA = load("librdkafka-2.16.0")
CODEC_NAMES = [codec.name for codec in CODECS]


def view(batch: bytes) -> BatchView:
    check_batch(memoryview(batch), 0, len(batch))
    return BatchView(memoryview(batch))


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_batches_of_the_java_producer_are_read(codec: str) -> None:
    batch = view(KAFKA[f"{codec}-plain"])
    assert batch.compression == CODEC_IDS[codec]
    assert batch.records() == PLAIN_ROWS
    assert (batch.base_timestamp, batch.max_timestamp) == (TIME, TIME + 70000)


@pytest.mark.parametrize("codec", CODEC_NAMES[1:])
def test_compressed_batches_of_many_blocks_are_read(codec: str) -> None:
    batch = view(KAFKA[f"{codec}-long"])
    assert batch.partition_leader_epoch == 7
    assert batch.records() == LONG_ROWS


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_batches_of_librdkafka_are_read(codec: str) -> None:
    # librdkafka's snappy is one raw block without xerial's framing.
    batch = view(LIBRDKAFKA[codec])
    rows = PLAIN_ROWS if codec == "none" else PLAIN_ROWS + moved(LONG_ROWS, len(PLAIN_ROWS))
    assert batch.compression == CODEC_IDS[codec]
    assert batch.records() == rows


def test_an_uncompressed_batch_is_built_as_the_java_producer_builds_it() -> None:
    rows = [(row.key, row.value, row.timestamp, row.headers) for row in PLAIN_ROWS]
    assert build_batch(rows).hex() == KAFKA["none-plain"].hex()
    idempotent = build_batch(
        rows, base_offset=1234, producer_id=77, producer_epoch=3, base_sequence=2147483646, leader_epoch=5
    )
    assert idempotent.hex() == KAFKA["idempotent"].hex()
    assert view(idempotent).last_sequence == 2  # sequences wrap at 2^31
    transactional = build_batch(rows, producer_id=77, producer_epoch=3, base_sequence=9, transactional=True)
    assert transactional.hex() == KAFKA["transactional"].hex()


def test_log_append_time_stands_for_the_timestamp_of_every_record() -> None:
    batch = view(KAFKA["log-append-time"])
    assert batch.timestamp_type == 1
    assert [record.timestamp for record in batch.records()] == [batch.max_timestamp]


@pytest.mark.parametrize("name, committed, offset, epoch", [("commit", True, 50, 11), ("abort", False, 51, 12)])
def test_transaction_markers_are_those_of_apache_kafka(name: str, committed: bool, offset: int, epoch: int) -> None:
    built = end_txn_batch(
        committed=committed,
        producer_id=77,
        producer_epoch=3,
        coordinator_epoch=epoch,
        timestamp=TIME,
        base_offset=offset,
        leader_epoch=6,
    )
    assert built.hex() == KAFKA[name].hex()
    marker = end_txn_marker(view(KAFKA[name]))
    assert marker == (committed, epoch)


@pytest.mark.parametrize(
    "name, kind, offset",
    [
        ("leader-change", ControlType.LEADER_CHANGE, 60),
        ("snapshot-header", ControlType.SNAPSHOT_HEADER, 0),
        ("snapshot-footer", ControlType.SNAPSHOT_FOOTER, 9),
        ("kraft-version", ControlType.KRAFT_VERSION, 1),
        ("voters", ControlType.KRAFT_VOTERS, 2),
    ],
)
def test_control_batches_of_the_raft_log_are_those_of_apache_kafka(name: str, kind: ControlType, offset: int) -> None:
    batch = view(KAFKA[name])
    (record,) = batch.records()
    assert batch.is_control and control_type(record) is kind
    assert record.value is not None
    built = control_batch([(kind, record.value)], timestamp=TIME, base_offset=offset, leader_epoch=8)
    assert built.hex() == KAFKA[name].hex()
    assert end_txn_marker(batch) is None


def describe(batch: BatchView) -> str:
    """Return the batch in the words of the Java program."""

    def text(value: bytes | None) -> str:
        return "null" if value is None else value.hex()

    rows = ";".join(
        f"{row.offset}@{row.timestamp} {text(row.key)}={text(row.value)}"
        + "".join(f" {name.encode().hex()}:{text(value)}" for name, value in row.headers)
        for row in batch.records()
    )
    fields = (
        batch.base_offset,
        batch.last_offset,
        batch.partition_leader_epoch,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        batch.last_sequence,
        CODECS[batch.compression].name,
        "LogAppendTime" if batch.timestamp_type else "CreateTime",
        str(batch.is_transactional).lower(),
        str(batch.is_control).lower(),
        batch.max_timestamp,
        "none" if batch.delete_horizon is None else batch.delete_horizon,
        rows,
    )
    return "|".join(map(str, fields))


@needs_apache_kafka
def test_apache_kafka_reads_our_batches(tmp_path: Path) -> None:
    plain = [NewRecord(row.key, row.value, row.timestamp, row.headers) for row in PLAIN_ROWS]
    long = [NewRecord(row.key, row.value, row.timestamp) for row in LONG_ROWS]
    batches: dict[str, bytes] = {}
    for number, codec in enumerate(CODECS):
        batches[f"{codec.name}-plain"] = build_batch(plain, compression=number, base_offset=5, leader_epoch=2)
        batches[f"{codec.name}-long"] = build_batch(long, compression=number, producer_id=9, producer_epoch=1)
        for level in {codec.level_min, min(codec.level_max, 19)} - {0}:
            batches[f"{codec.name}-level{level}"] = build_batch(long, compression=number, level=max(level, -7))
    compacted = BatchView(memoryview(batches["gzip-plain"]))
    batches["compacted"] = rebuild_batch(compacted, compacted.records()[1:3], delete_horizon_ms=TIME + 9)
    batches["emptied"] = rebuild_batch(compacted, [])
    file = tmp_path / "batches.txt"
    file.write_text("".join(f"{name} {batch.hex()}\n" for name, batch in batches.items()))
    seen = dict(line.split(" ", 1) for line in apache_kafka.run_java(JAVA_PROGRAM, "read", str(file)).splitlines())
    assert seen == {name: describe(BatchView(memoryview(batch))) for name, batch in batches.items()}


@needs_apache_kafka
def test_the_checked_in_batches_are_what_apache_kafka_makes() -> None:
    made = dict(line.split() for line in apache_kafka.run_java(JAVA_PROGRAM, "write").splitlines())
    assert made.keys() == KAFKA.keys()
    # Compressed bytes may differ between builds of the codec, and the log-append-time batch has the time of its creation.
    exact = [name for name in KAFKA if not name.startswith(tuple(CODEC_NAMES[1:])) and name != "log-append-time"]
    assert {name: made[name] for name in exact} == {name: KAFKA[name].hex() for name in exact}
