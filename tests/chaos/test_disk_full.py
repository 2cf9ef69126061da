"""One of three combined nodes on a full disk: as a follower it leaves the ISR, as a leader it rejects appends; reads go on.
With room again it takes part again. It never dies (by SIGBUS, or by its metadata log), and no acknowledged record is lost.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException

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
#: The room that the ballast leaves: some appends still succeed, so that the node itself fills the disk.
LEFT_BYTES = 2 << 20
SMALL = 1
LEADER_DIRECT = 903


def directories(disk: Path) -> dict[str, str]:
    """Return the directories of the node with the small disk. Its metadata log is there, too, as on any combined node."""
    return {"log.dirs": str(disk / "data")}


def create(cluster: Cluster, first: int) -> None:
    """Create the topics, whose partitions are all led by `first`."""
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


def make_room_for_topics(cluster: Cluster) -> None:
    """Create topics until each metadata log needs more room than was allocated ahead for it. They have no replica on the full
    disk.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    others = [node_id for node_id in cluster.nodes if node_id != SMALL]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(2):
        names = [f"more-{number}-{index}" for index in range(50)]
        made = admin.create_topics([NewTopic(name, 2, replica_assignment=[others, others]) for name in names])
        for name in names:
            with suppress(KafkaException):  # the active controller's disk may be the full one, until it resigns
                made[name].result(30)


@pytest.mark.chaos
def test_a_follower_on_a_full_disk_leaves_the_isr_and_comes_back_with_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        Cluster(3, per_node={SMALL: directories(disk)}, replica_lag_time_max_ms="2000", **STEADY) as cluster,
    ):
        create(cluster, first=2)
        load = Load(cluster.bootstrap, padding=1000)
        load.wait_for_acknowledgements(500)
        ballast = fill(disk, LEFT_BYTES)
        eventually(lambda: all(SMALL not in isr for isr in cluster.isr(TOPIC).values()), "it to leave", seconds=60)
        load.wait_for_acknowledgements(500)
        fill(disk)  # No byte is left for the metadata log either: an idle quorum writes twice a second.
        make_room_for_topics(cluster)
        assert cluster.is_running(SMALL), cluster.log(SMALL)[-2000:]
        ballast.unlink()
        load.stop()  # the load stops, because its records have to fit onto the small disk
        cluster.wait_isr(TOPIC, seconds=60)
        assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []
        assert cluster.is_running(SMALL)


@pytest.mark.chaos
def test_a_leader_on_a_full_disk_refuses_to_write_goes_on_reading_and_takes_writes_again_with_room(
    tmp_path: Path,
) -> None:
    with (
        small_disk(tmp_path / "disk", DISK_BYTES) as disk,
        Cluster(3, per_node={SMALL: directories(disk)}, **STEADY) as cluster,
    ):
        create(cluster, first=SMALL)
        load = Load(cluster.bootstrap, padding=1000)
        load.wait_for_acknowledgements(500)
        ballast = fill(disk, LEFT_BYTES)
        direct = DirectProducer(cluster.nodes[SMALL].port, TOPIC, LEADER_DIRECT)
        refused = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        eventually(lambda: direct.produce(ALL, padding=1000) in refused, "a refusal", seconds=60)
        time.sleep(2)  # the scheduled tasks run on the full disk, too
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
