"""kill -9 of leaders at the steps of copies and deletions, while their object store is stopped, paused, full, or has lost its
bucket (KIP-405).
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.broker.tiers.metadata_topic import TOPIC as METADATA_TOPIC
from ottla.broker.tiers.remote_segments import RemoteSegments, place_of
from ottla.protocol.internal_topics.remote_log_records import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    decode_remote_log_record,
)
from ottla.protocol.primitives import uuid_to_str
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.history import (
    IMPATIENT,
    PARTITIONS,
    TOPIC,
    Load,
    broken_promises,
    create_topic,
    encode,
    judge,
    read_everything,
)
from tests.chaos.roles import leader_of
from tests.effort import LONG, SHORT_SESSIONS
from tests.needs import needs_packages, skip_because, small_disk
from tools import versitygw

needs_packages("obstore")

KILLS = 100 if LONG else 20
BUCKET = "cold"
#: Its old segments are deleted all the time.
SHORT = "short"
#: The settings of producers, because a batch must fit into a segment.
SMALL = {"batch.num.messages": 10}
#: Partitions of the topic of the records.
RECORDS = 3
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "internal.segment.bytes": "20000",
    "retention.ms": "-1",
    "min.insync.replicas": "2",
}
OFTEN = {
    "remote.log.storage.system.enable": "true",
    "ottla.tier.location": f"s3://{BUCKET}/cluster",
    "ottla.tier.call.timeout.ms": "4000",
    "ottla.tier.orphan.age.ms": "3000",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "file.delete.delay.ms": "0",
}
#: What is done to the store around a kill: nothing, as often as everything else.
TROUBLES = ("none", "none", "none", "none", "stopped", "paused", "full", "bucket away")
#: The room of the store.
ROOM_BYTES = 512 << 20
#: Of the topic whose store is full: 60 segments of three partitions.
FULL_BYTES = 60 * 20_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[versitygw.Server]:
    skip_because(versitygw.missing())
    with small_disk(tmp_path, str(ROOM_BYTES)) as disk, versitygw.Server(disk, BUCKET) as server:
        yield server


def resize(store: versitygw.Server, size: int) -> bool:
    disk = store.bucket.parent.parent
    return not subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], capture_output=True).returncode


def fill(store: versitygw.Server) -> None:
    """Leave no room in the store: its file system is made as small as what it has, which is refused while that grows."""

    def is_small() -> bool:
        usage = os.statvfs(store.bucket)
        return resize(store, max(1, usage.f_blocks - usage.f_bfree) * usage.f_frsize)

    eventually(is_small, "the store is full")


def suffer(store: versitygw.Server, trouble: str) -> None:
    match trouble:
        case "stopped":
            store.stop()
        case "paused":
            store.pause()
        case "full":
            fill(store)
        case "bucket away":
            store.take_bucket()


def objects(store: versitygw.Server) -> set[str]:
    return {path.name for path in store.bucket.rglob("kafka-tiered-storage/*/*") if path.is_file()}


def named(cluster: Cluster) -> set[str]:
    """Return the ids of the segments that have a record, as text."""
    consumer = Consumer(cluster.client_settings | {"group.id": "names", "enable.auto.commit": False})
    found: dict[tuple[bytes, int], RemoteSegments] = {}
    try:
        for index in range(RECORDS):
            place = TopicPartition(METADATA_TOPIC, index, 0)
            _, end = consumer.get_watermark_offsets(place, 20)
            consumer.assign([place])
            offset = 0
            while offset < end:
                for message in consumer.consume(500, 1):
                    assert message.error() is None, message.error()
                    offset = (message.offset() or 0) + 1
                    record = decode_remote_log_record(message.value() or b"")
                    about = place_of(record)
                    assert about is not None
                    assert isinstance(record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord)
                    found.setdefault((about.topic_id, about.partition), RemoteSegments()).replay(record)
    finally:
        consumer.close()
    return {uuid_to_str(each) for segments in found.values() for each in segments.by_id}


def unnamed(cluster: Cluster, store: versitygw.Server) -> set[str]:
    found, known = objects(store), named(cluster)
    return {name for name in found if name[21:43] not in known}


def kept_values(cluster: Cluster, topic: str) -> dict[tuple[int, int], bytes]:
    """Return what is left of a topic that retention shortens, and see that nothing is missing in it."""
    consumer = Consumer(
        cluster.client_settings | {"group.id": "kept", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    found: dict[tuple[int, int], bytes] = {}
    try:
        for partition in range(PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(place, 20)
            consumer.assign([place])
            offset, deadline = -1, time.monotonic() + 60
            while offset < end - 1:
                assert time.monotonic() < deadline, f"{topic}-{partition} is read to {offset} of {end}"
                for message in consumer.consume(500, 1):
                    assert message.error() is None, message.error()
                    offset = message.offset() or 0
                    found[partition, offset] = message.value() or b""
    finally:
        consumer.close()
    return found


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_leaders_killed_in_the_middle_of_copies_and_deletions_lose_nothing_and_leave_nothing(
    store: versitygw.Server,
) -> None:
    rng = random.Random(45)
    common = OFTEN | {f"ottla.tier.store.{name}": value for name, value in store.options.items()}
    with Cluster(3, per_node=dict.fromkeys((1, 2, 3), common), **SHORT_SESSIONS) as cluster:
        create_topic(cluster.bootstrap, 3, **TIERED)
        create_topic(cluster.bootstrap, 3, SHORT, **TIERED | {"retention.bytes": "100000"})
        loads = [
            Load(cluster.bootstrap, number, topic=topic, padding=600, per_second=60, settings=IMPATIENT | SMALL)
            for number, topic in enumerate((TOPIC, SHORT))
        ]
        for _ in range(KILLS):
            trouble = rng.choice(TROUBLES)
            before = objects(store)
            for load in loads:
                load.wait_for_acknowledgements(rng.randint(1, 200))
            if trouble == "none":
                # Something is being copied, or deleted: a segment is six objects.
                eventually(lambda before=before: objects(store) != before, "something is copied", 60)
            suffer(store, trouble)
            time.sleep(rng.uniform(0, 0.1 if trouble == "none" else 6))  # a step, or some failed rounds and late calls
            victim = leader_of(cluster, rng.choice((TOPIC, SHORT)), rng.randrange(PARTITIONS))
            cluster.kill(victim)
            if rng.random() < 0.5:
                loads[0].wait_for_acknowledgements(100)
            store.recover()
            assert resize(store, ROOM_BYTES)
            cluster.start(victim)
            cluster.wait_isr(TOPIC, seconds=90)
        for load in loads:
            load.stop()
        places = read_everything(cluster.bootstrap, leaders_change=True)
        assert judge(loads[:1], places) == []
        kept = kept_values(cluster, SHORT)
        acknowledged = {
            (at.partition, at.offset): record for record, at in loads[1].acknowledged.items() if at.offset >= 0
        }
        for place, record in acknowledged.items():
            if place in kept:
                assert kept[place].startswith(encode(record)), place
        eventually(lambda: not unnamed(cluster, store), "each object has a record", 90)


def on_disk(cluster: Cluster) -> list[int]:
    """Return the sizes of the segments on the node's disk."""
    sizes = list[int]()
    for path in Path(cluster.node(1).data_dir).rglob(f"{TOPIC}-?/*.log"):
        with suppress(FileNotFoundError):  # it has just left
            sizes.append(path.stat().st_size)
    return sizes


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_full_store_stops_no_producer_and_copies_go_on_when_there_is_room(store: versitygw.Server) -> None:
    common = OFTEN | {f"ottla.tier.store.{name}": value for name, value in store.options.items()}
    alone = {"rlmm.config.remote.log.metadata.topic.replication.factor": "1"}
    with Cluster(1, per_node={1: common | alone}, **SHORT_SESSIONS) as cluster:
        create_topic(cluster.bootstrap, 1, **TIERED | {"min.insync.replicas": "1"})
        load = Load(cluster.bootstrap, padding=600, per_second=400, settings=SMALL)
        eventually(lambda: len(objects(store)) > 30, "some segments are copied", 60)
        fill(store)
        eventually(lambda: stays(cluster), "an ERROR line says that segments stay", 60)
        kept = sum(on_disk(cluster))
        eventually(lambda: sum(on_disk(cluster)) > kept + FULL_BYTES, "the disk fills", 60)
        load.wait_for_acknowledgements(100)
        acknowledged = load.acknowledged.copy()
        # The store can be read, and all that is not there is on the disk.
        assert broken_promises(acknowledged, read_everything(cluster.bootstrap)) == []
        assert resize(store, ROOM_BYTES)
        eventually(lambda: len(on_disk(cluster)) < 12, "the copies go on", 60)
        load.stop()
        assert judge([load], read_everything(cluster.bootstrap)) == []
        eventually(lambda: not unnamed(cluster, store), "each object has a record", 90)


def stays(cluster: Cluster) -> bool:
    return "and stay here" in "".join(path.read_text() for path in Path(cluster.directory).rglob("server.log"))
