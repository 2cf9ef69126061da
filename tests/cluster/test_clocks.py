"""Clocks that are days apart, or jump: acknowledged records stay, and no node is taken for dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.shared_structs import TopicNamePartitions
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.cluster.shared import STEADY
from tests.cluster.test_three_nodes import Writer, create, read

pytestmark = pytest.mark.timeout(180)
HOUR = 3600
DAY = 24 * HOUR


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, log_retention_check_interval_ms="500", log_initial_task_delay_ms="500", **STEADY) as running:
        yield running


def make_leader(cluster: Cluster, topic: str, node_id: int) -> None:
    """Make the node the leader by a preferred election, for which it has to be the preferred replica."""
    cluster.wait_isr(topic)

    def leads() -> bool:
        with Wire(cluster.nodes[node_id].port) as wire:
            asked = [TopicNamePartitions(topic=topic, partitions=[0])]
            wire.request(ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout_ms=5_000))
        return cluster.leaders(topic)[0] == node_id

    eventually(leads, f"{node_id} to lead")


@pytest.mark.parametrize("offset", [3 * DAY, -3 * DAY], ids=["+3d", "-3d"])
def test_a_node_whose_clock_is_days_off_follows_and_leads_and_nothing_is_lost(cluster: Cluster, offset: int) -> None:
    # By default a leader rejects records that are an hour ahead of its clock, as Kafka does.
    create(cluster, "skewed", message_timestamp_after_max_ms=str(1 << 62))
    wrong = cluster.leaders("skewed")[0]
    writer = Writer(cluster, "skewed")
    writer.write(300)
    writer.flush()
    cluster.skew_clock(wrong, offset)
    writer.write(300)
    make_leader(cluster, "skewed", wrong)
    writer.write(300)
    writer.flush()
    assert writer.errors == []
    assert read(cluster, "skewed", writer.sent) == list(range(writer.sent))
    cluster.kill(next(n for n in cluster.nodes if n != wrong))
    writer.write(100)
    writer.flush()
    assert read(cluster, "skewed", writer.sent) == list(range(writer.sent))


def test_a_leader_whose_clock_jumps_back_and_forth_loses_nothing_and_keeps_its_followers(cluster: Cluster) -> None:
    create(cluster, "jumps", message_timestamp_after_max_ms=str(1 << 62))
    leader = cluster.leaders("jumps")[0]
    writer = Writer(cluster, "jumps")
    make_leader(cluster, "jumps", leader)
    for offset in (3 * DAY, -3 * DAY, HOUR, 0):
        writer.write(100)
        cluster.skew_clock(leader, offset)
        writer.write(300, per_second=500)  # this takes longer than a follower waits for records (500 ms)
        writer.flush()
    assert writer.errors == []
    assert read(cluster, "jumps", writer.sent) == list(range(writer.sent))
    cluster.wait_isr("jumps")
    assert len(cluster.metadata().brokers) == 3


def test_a_follower_whose_clock_is_ahead_deletes_nothing_that_others_keep(cluster: Cluster) -> None:
    """A follower's copy is deleted by its own clock, as in Kafka; consumers read what the leader has."""
    create(cluster, "kept", retention_ms=str(24 * 3600 * 1000))
    writer = Writer(cluster, "kept")
    writer.write(500)
    writer.flush()
    follower = next(n for n in cluster.nodes if n != cluster.leaders("kept")[0])
    cluster.skew_clock(follower, 3 * DAY)
    cluster.wait_isr("kept")
    writer.write(100)
    writer.flush()
    assert read(cluster, "kept", writer.sent) == list(range(writer.sent))
