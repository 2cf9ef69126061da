"""Apache Kafka reads our files, and we read Kafka's: its dump tool reads our files, and each node opens the other's data."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer

from ottla.storage.checkpoint import RECOVERY_POINT, REPLICATION, read_offsets
from ottla.storage.directories.log_dirs import open_log_dirs, read_meta_properties
from ottla.storage.directories.logs import Logs
from ottla.storage.files import OsFiles
from ottla.storage.log.log import Origin
from ottla.storage.log.trusted_append import append_trusted
from ottla.storage.log_config import LogConfig
from tests.needs import needs_apache_kafka
from tests.ports import free_ports
from tests.storage.logs_for_tests import NOW_MS, append, batch, marker, open_at, read_all
from tools.apache_kafka import ApacheKafka, ToolSession

pytestmark = [
    needs_apache_kafka,
    pytest.mark.timeout(300),
]
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
PROPERTIES = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "512", "num.partitions": "2"}
TOPIC = "from-apache"
CONFIG = LogConfig(segment_bytes=8000, index_interval_bytes=300)


@pytest.fixture(scope="module")
def tools() -> Iterator[ToolSession]:
    with ToolSession() as session:
        yield session


@contextmanager
def kafka(data: Path) -> Iterator[ApacheKafka]:
    """Its controller listens 100 above the first port."""
    with ApacheKafka(
        free_ports(101)[0], data=data, properties=PROPERTIES, cluster_id=CLUSTER_ID, quick=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def of_apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of an Apache Kafka node that wrote 3,000 records and stopped cleanly. Each test takes a copy."""
    data = tmp_path_factory.mktemp("apache") / "cluster"
    with kafka(data) as running:
        produce(running.bootstrap, "one", 3000)
    return data


def dump(tools: ToolSession, *args: str) -> str:
    done = tools.run("kafka-dump-log", *args)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def complaints(text: str) -> list[str]:
    return [
        line
        for line in text.splitlines()
        if re.search(r"mismatch|Found|Exception|corrupt|invalid|isvalid: false", line)
    ]


@pytest.mark.compat
@pytest.mark.parametrize("killed", [False, True])
def test_the_dump_tool_finds_nothing_wrong_with_our_files(tools: ToolSession, tmp_path: Path, killed: bool) -> None:
    directory = tmp_path / "topic-0"
    log = open_at(directory, CONFIG)
    for sequence in range(40):
        append(log, batch(5, fill=sequence, timestamp=NOW_MS - sequence % 4 * 1000), epoch=sequence // 15)
        append(
            log,
            batch(1, producer_id=4, producer_epoch=0, base_sequence=sequence, transactional=True),
            epoch=sequence // 15,
        )
        if sequence % 10 == 9:
            end = marker(4, 0, commit=sequence == 19)
            append_trusted(log, end, leader_epoch=sequence // 15, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    if killed:
        del log
        log = open_at(directory, CONFIG)
    log.close()
    kinds = ("log", "index", "timeindex", "txnindex", "snapshot")
    files = [str(path) for kind in kinds for path in sorted(directory.glob(f"*.{kind}"))]
    assert len(files) > 15
    text = dump(tools, "--deep-iteration", "--files", ",".join(files))
    assert complaints(text) == []
    assert "isTransactional: true" in text and "endTxnMarker: ABORT" in text and "producerEpoch: 0" in text
    indexes = ",".join(file for file in files if file.endswith("index") and "txn" not in file)
    sane = dump(tools, "--index-sanity-check", "--files", indexes)
    assert sane.count("passed sanity check.") == len(list(directory.glob("*.index"))) * 2, sane


def opened(log_dir: Path, config: LogConfig) -> Logs:
    """Return the directory, opened by a node of ours."""
    logs = Logs(OsFiles(), open_log_dirs(OsFiles(), [str(log_dir)], CLUSTER_ID, 1), Random(1))
    logs.open_all(lambda topic, topic_id: config, NOW_MS)
    return logs


@pytest.mark.compat
def test_a_directory_goes_from_apache_kafka_to_us_and_back(
    tools: ToolSession, of_apache_kafka: Path, tmp_path: Path
) -> None:
    data = tmp_path / "cluster"
    shutil.copytree(of_apache_kafka, data)
    log_dir = data / "node1"
    kept = {path.name: (path / "00000000000000000000.log").read_bytes() for path in log_dir.glob(f"{TOPIC}-*")}
    assert kept

    meta = read_meta_properties(OsFiles(), str(log_dir))
    assert meta is not None and meta.cluster_id == CLUSTER_ID
    logs = opened(log_dir, LogConfig(segment_bytes=1 << 20, index_interval_bytes=512))
    assert logs.previous_broker_epoch >= 0, "Apache Kafka stopped cleanly and left its epoch"
    ours = [log for log in logs.open if log.topic == TOPIC]
    assert sum(log.log_end_offset for log in ours) == 3000
    for log in ours:
        assert log.recovery_point == log.log_end_offset == log.high_watermark
        assert read_all(log, 1 << 20) == b"".join(
            path.read_bytes() for path in sorted(Path(log.directory).glob("*.log"))
        )
        assert read_all(log, 1 << 20).startswith(kept[f"{TOPIC}-{log.partition}"][:100])
    before = {log.partition: log.log_end_offset for log in ours}
    for log in ours:
        for i in range(500):
            append(log, batch(2, fill=i), epoch=log.epochs.latest)
        log.advance_high_watermark(log.log_end_offset)
    logs.close_all(broker_epoch=99)
    files = [
        str(path)
        for log in ours
        for path in sorted(Path(log.directory).glob("*.*[xgt]"))
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot")
    ]
    assert complaints(dump(tools, "--files", ",".join(files))) == []
    points = read_offsets(OsFiles(), f"{log_dir}/{RECOVERY_POINT}")
    assert points[(TOPIC, 0)] == before[0] + 1000 == read_offsets(OsFiles(), f"{log_dir}/{REPLICATION}")[(TOPIC, 0)]

    with kafka(data) as running:
        produce(running.bootstrap, "two", 100)
        assert end_offsets(tools, running.bootstrap) == 3000 + 2 * 1000 + 100
    server_log = (data / "node1.log").read_text(errors="replace")
    assert not re.search(rf"(rebuilding|corrupt|Recovering).*{TOPIC}", server_log), server_log[-3000:]


def produce(bootstrap: str, prefix: str, count: int) -> None:
    refused: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    for number in range(count):
        value = f"{prefix}-{number} {'x' * (number % 50)}"
        producer.produce(TOPIC, value, on_delivery=lambda error, message: refused.append(error))
    assert producer.flush(60) == 0 and refused == [None] * count


def end_offsets(tools: ToolSession, bootstrap: str) -> int:
    done = tools.run("kafka-get-offsets", "--bootstrap-server", bootstrap, "--topic", TOPIC)
    return sum(int(line.rsplit(":", 1)[1]) for line in done.stdout.split())
