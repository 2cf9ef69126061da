"""One of a node's two log directories goes away: its leaders move, and the other directory goes on serving; after the repair
all replicas come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.history import PARTITIONS, TOPIC, Load, create_topic, judge, read_everything
from tests.cluster.shared import STEADY

pytestmark = pytest.mark.timeout(240)

NODE = 1


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    # The metadata log is in another directory, because a node cannot run without it.
    own = {"log.dirs": f"{tmp_path}/one,{tmp_path}/two", "metadata.log.dir": f"{tmp_path}/metadata"}
    with Cluster(3, per_node={NODE: own}, replica_high_watermark_checkpoint_interval_ms="500", **STEADY) as running:
        yield running


def partitions_in(directory: Path) -> set[int]:
    return {int(path.name.rpartition("-")[2]) for path in directory.glob(f"{TOPIC}-*")}


def offline_replicas(cluster: Cluster, asked: int) -> dict[int, list[int]]:
    described = cluster.metadata([TOPIC], asked).topics[0].partitions
    return {each.partition_index: list(each.offline_replicas) for each in described}


def take_away(directory: Path) -> None:
    """Put a file in the place of the directory: nothing can be opened, made or renamed in it any more."""
    directory.rename(directory.with_suffix(".gone"))
    directory.write_text("not a directory")


def bring_back(directory: Path) -> None:
    directory.unlink()
    directory.with_suffix(".gone").rename(directory)


@pytest.mark.chaos
def test_leaders_leave_a_failed_directory_the_other_serves_on_and_a_repaired_one_comes_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
    cluster.wait_isr(TOPIC)
    load = Load(cluster.bootstrap)
    load.wait_for_acknowledgements(500)
    failing, other = tmp_path / "one", tmp_path / "two"
    everywhere = set(range(PARTITIONS))
    eventually(lambda: partitions_in(failing) | partitions_in(other) == everywhere, "a first record in each", 60)
    lost, kept = partitions_in(failing), partitions_in(other)
    assert lost and kept, "the replicas are not spread over both directories"
    led_before = {index for index, leader in cluster.leaders(TOPIC).items() if leader == NODE}
    take_away(failing)
    eventually(lambda: all(NODE not in cluster.isr(TOPIC)[index] for index in lost), "the ISR to do without it", 60)
    for asked in (2, 3):
        eventually(
            lambda asked=asked: (
                offline_replicas(cluster, asked)
                == {index: [NODE] if index in lost else [] for index in range(PARTITIONS)}
            ),
            f"node {asked} to show the offline replicas",
            30,
        )
    leaders, isr = cluster.leaders(TOPIC), cluster.isr(TOPIC)
    assert all(leaders[index] not in (NODE, -1) for index in lost)
    assert all(leaders[index] == NODE for index in led_before & kept), "leaders left a directory that works"
    assert all(NODE in isr[index] for index in kept)
    load.wait_for_acknowledgements(500)
    # A restart does not need the broken directory.
    cluster.restart(NODE)
    eventually(
        lambda: all(NODE in cluster.isr(TOPIC)[index] for index in kept), "the other directory to be in sync", 60
    )
    assert all(NODE not in cluster.isr(TOPIC)[index] for index in lost)
    cluster.stop(NODE)
    bring_back(failing)
    cluster.start(NODE)
    cluster.wait_isr(TOPIC, seconds=60)
    eventually(lambda: not any(offline_replicas(cluster, 2).values()), "node 2 to know it, too")
    load.wait_for_acknowledgements(500)
    load.stop()
    assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []
