"""One of three nodes on a full disk: as a follower it falls out of the ISR, as a leader it refuses; reads go on; with room
again it takes part again. Never does it die (SIGBUS), and nothing that was acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.direct import ALL, DirectProducer
from tests.chaos.disks import fill, small_disk
from tests.chaos.history import PARTITIONS, TOPIC, Load, broken_promises, judge, read_everything
from tests.cluster.shared import STEADY
from tests.needs import needs_root

pytestmark = [
    pytest.mark.timeout(240),
    needs_root,
]

DISK_BYTES = 64 << 20
#: Left when the ballast is in: some appends still succeed, so that the disk is filled by the node itself.
LEFT_BYTES = 2 << 20
SMALL = 1
LEADER_DIRECT = 903


def directories(disk: Path, beside: Path) -> dict[str, str]:
    """Return the directories of the node with the small disk. Its metadata log is on another disk: a node that cannot write a vote or a
    metadata snapshot ends."""
    return {"log.dirs": str(disk / "data"), "metadata.log.dir": str(beside / "metadata")}


def create(cluster: Cluster, first: int) -> None:
    """All partitions led by `first`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    replicas = [first, *(node_id for node_id in cluster.nodes if node_id != first)]
    topic = NewTopic(
        TOPIC,
        PARTITIONS,
        replica_assignment=[replicas] * PARTITIONS,
        config={"min.insync.replicas": "2", "segment.bytes": "1048576"},
    )
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.create_topics([topic])[TOPIC].result(30)
    cluster.wait_isr(TOPIC)


def test_a_follower_on_a_full_disk_leaves_the_isr_and_comes_back_with_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        Cluster(3, per_node={SMALL: directories(disk, tmp_path)}, replica_lag_time_max_ms="2000", **STEADY) as cluster,
    ):
        create(cluster, first=2)
        load = Load(cluster.bootstrap, padding=1000)
        load.wait_for_acknowledgements(500)
        ballast = fill(disk, LEFT_BYTES)
        eventually(lambda: all(SMALL not in isr for isr in cluster.isr(TOPIC).values()), "it to leave", seconds=60)
        load.wait_for_acknowledgements(500)
        assert cluster.is_running(SMALL), cluster.log(SMALL)[-2000:]
        ballast.unlink()
        load.stop()  # the disk is a small one: what was written meanwhile has to fit
        cluster.wait_isr(TOPIC, seconds=60)
        assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []
        assert cluster.is_running(SMALL)


def test_a_leader_on_a_full_disk_refuses_to_write_goes_on_reading_and_takes_writes_again_with_room(
    tmp_path: Path,
) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        Cluster(3, per_node={SMALL: directories(disk, tmp_path)}, **STEADY) as cluster,
    ):
        create(cluster, first=SMALL)
        load = Load(cluster.bootstrap, padding=1000)
        load.wait_for_acknowledgements(500)
        ballast = fill(disk, LEFT_BYTES)
        direct = DirectProducer(cluster.nodes[SMALL].port, TOPIC, LEADER_DIRECT)
        refused = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        eventually(lambda: direct.produce(ALL, padding=1000) in refused, "a refusal", seconds=60)
        time.sleep(2)  # the scheduled tasks meet the full disk, too
        assert cluster.is_running(SMALL), cluster.log(SMALL)[-2000:]
        acknowledged = dict(load.acknowledged)
        places = read_everything(cluster.bootstrap, leaders_change=True)
        assert broken_promises(acknowledged, places) == [], "reads did not go on"
        ballast.unlink()
        load.wait_for_acknowledgements(200)
        load.stop()
        cluster.wait_isr(TOPIC, seconds=60)
        assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []
        assert cluster.is_running(SMALL)
