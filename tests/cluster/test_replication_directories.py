"""Several log directories on each node: the placement of replicas, and their state after a disk has failed or was replaced."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.shared import STEADY
from tests.cluster.test_three_nodes import Writer, create, read

pytestmark = pytest.mark.timeout(180)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    two = {n: {"log.dirs": f"{tmp_path}/node-{n}/data,{tmp_path}/node-{n}/more"} for n in (1, 2, 3)}
    quick = {"replica_high_watermark_checkpoint_interval_ms": "300"}
    with Cluster(3, directory=str(tmp_path), per_node=two, **quick, **STEADY) as running:
        yield running


def directories(cluster: Cluster, node_id: int, topic: str) -> dict[str, list[int]]:
    """Return the partitions by the name of their directory, for directories that work."""
    with Wire(cluster.nodes[node_id].port) as wire:
        results = wire.request(DescribeLogDirsRequest(topics=None)).results
    return {
        Path(each.log_dir).name: sorted(p.partition_index for t in each.topics if t.name == topic for p in t.partitions)
        for each in results
        if not each.error_code
    }


def flip_last_byte(path: Path) -> bytes:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return bytes(data)


def leaders_when_preferred(cluster: Cluster, topic: str) -> dict[int, int]:
    """Elect the preferred leaders; return the present ones."""
    with Wire(cluster.nodes[1].port) as wire:
        asked = [TopicNamePartitions(topic=topic, partitions=list(range(6)))]
        wire.request(ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=5_000))
    return cluster.leaders(topic)


def test_replicas_are_spread_over_the_directories_of_each_node(cluster: Cluster) -> None:
    create(cluster, "spread", partitions=6)
    for node_id in cluster.nodes:
        found = directories(cluster, node_id, "spread")
        assert sorted(map(len, found.values())) == [3, 3]
        assert sorted(found["data"] + found["more"]) == list(range(6))


def test_leadership_moves_away_from_a_directory_that_is_lost_and_stays_in_the_other(cluster: Cluster) -> None:
    create(cluster, "lost", partitions=6)
    writer = Writer(cluster, "lost")
    writer.write(100)
    writer.flush()
    found = directories(cluster, 2, "lost")
    led = [partition for partition, leader in cluster.leaders("lost").items() if leader == 2]
    lost, kept = set(found["more"]), set(found["data"])
    # A renamed directory stands for a disk that is gone: nothing can be made or renamed there any more.
    Path(cluster.directory, "node-2", "more").rename(Path(cluster.directory, "node-2", "gone"))
    eventually(lambda: all(2 not in cluster.isr("lost")[p] for p in lost), "its replicas to leave the ISRs", seconds=30)
    leaders = cluster.leaders("lost")
    assert all(leaders[p] not in (-1, 2) for p in lost)
    assert {p for p in led if p in kept} == {p for p in kept if leaders[p] == 2}
    assert all(2 in cluster.isr("lost")[p] for p in kept)
    writer.write(100)
    writer.flush()
    assert writer.errors == []
    assert read(cluster, "lost", writer.sent) == list(range(writer.sent))


@pytest.mark.chaos
def test_a_replaced_disk_gets_its_replicas_again_and_they_may_lead(cluster: Cluster) -> None:
    create(cluster, "replaced", partitions=6)
    before = cluster.leaders("replaced")
    writer = Writer(cluster, "replaced")
    writer.write(200)
    writer.flush()
    cluster.stop(2)
    shutil.rmtree(Path(cluster.directory, "node-2", "more"))
    cluster.start(2)
    cluster.wait_isr("replaced")
    eventually(
        lambda: leaders_when_preferred(cluster, "replaced") == before,
        "all preferred leaders, those on the new disk, too",
    )
    assert read(cluster, "replaced", writer.sent) == list(range(writer.sent))


@pytest.mark.chaos
def test_a_damaged_replica_does_not_lead_and_is_filled_again_once_it_was_removed(
    cluster: Cluster,
) -> None:
    create(cluster, "damaged", partitions=6)
    writer = Writer(cluster, "damaged")
    writer.write(200)
    writer.flush()
    node = cluster.leaders("damaged")[0]
    cluster.stop(node)
    [path] = Path(cluster.directory, f"node-{node}").glob(f"*/damaged-0/{0:020d}.log")
    data = flip_last_byte(path)
    cluster.start(node)
    eventually(
        lambda: all(node in cluster.isr("damaged")[p] for p in range(1, 6)), "its others to catch up", seconds=30
    )
    eventually(lambda: node in leaders_when_preferred(cluster, "damaged").values(), "it to lead others", seconds=30)
    assert cluster.leaders("damaged")[0] not in (-1, node)
    assert node not in cluster.isr("damaged")[0]
    writer.write(100)
    writer.flush()
    assert writer.errors == []
    assert read(cluster, "damaged", writer.sent) == list(range(writer.sent))
    assert path.read_bytes() == data, "nothing of it was changed"

    cluster.stop(node)
    shutil.rmtree(path.parent)
    (path.parent.parent / ".kafka_cleanshutdown").unlink()
    cluster.start(node)
    cluster.wait_isr("damaged")
    eventually(lambda: leaders_when_preferred(cluster, "damaged")[0] == node, "it to lead again", seconds=30)
    assert read(cluster, "damaged", writer.sent) == list(range(writer.sent))


def test_a_damaged_partition_without_another_replica_has_no_leader(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("single", 6, 1)])["single"].result(20)
    writer = Writer(cluster, "single")
    writer.write(200)
    writer.flush()
    node = cluster.leaders("single")[0]
    cluster.stop(node)
    [path] = Path(cluster.directory, f"node-{node}").glob(f"*/single-0/{0:020d}.log")
    flip_last_byte(path)
    cluster.start(node)

    def rows() -> list[tuple[int, list[int]]]:
        [topic] = cluster.metadata(["single"], node).topics
        return [
            (row.error_code, row.offline_replicas) for row in sorted(topic.partitions, key=lambda r: r.partition_index)
        ]

    alone = [(ErrorCode.LEADER_NOT_AVAILABLE, [node]), *[(ErrorCode.NONE, [])] * 5]
    eventually(lambda: rows() == alone, "it alone to have no leader", seconds=30)
