"""A leader, or the active controller, that sleeps for longer than its session: replaced, and harmless when it wakes up."""

from __future__ import annotations

import time

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.cluster_cycles import replicas_differ
from tests.chaos.direct import ALL, LEADER, DirectProducer
from tests.chaos.group_history import Group
from tests.chaos.history import TOPIC, Load, create_topic, judge, read_everything
from tests.chaos.roles import active_controller, leader_of
from tests.effort import LONG, SHORT_SESSIONS

#: The time asleep, which is longer than the session; `make chaos` uses the 30 s of the promise.
ASLEEP_SECONDS = 30 if LONG else 5
TAIL, ASKED = 901, 902
#: The number of batches in the leader's tail, and of records in each.
BATCHES, BATCH = 12, 10


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_a_leader_that_slept_longer_than_its_session_acknowledges_nothing_wrongly_and_its_own_tail_is_cut() -> None:
    with Cluster(3, **SHORT_SESSIONS) as cluster:
        create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
        cluster.wait_isr(TOPIC)
        load, group = Load(cluster.bootstrap), Group(cluster.bootstrap, members=2)
        load.wait_for_acknowledgements(500)
        leader = leader_of(cluster, TOPIC)
        followers = [node_id for node_id in cluster.nodes if node_id != leader]
        tail, asked = (DirectProducer(cluster.nodes[leader].port, TOPIC, number) for number in (TAIL, ASKED))
        # The leader's tail consists of the records that are appended while the followers sleep, and that are not in a response
        # on its way to them. The first batches may be on their way, because a leader holds a follower's fetch until the
        # producers that it has just acknowledged have written again, for a millisecond at most.
        for node_id in followers:
            cluster.pause(node_id)
        assert [tail.produce(LEADER, count=BATCH) for _ in range(BATCHES)] == [ErrorCode.NONE] * BATCHES
        asked.send(ALL, timeout_ms=60_000)
        asked_by = time.monotonic()
        assert tail.produce(LEADER) is ErrorCode.NONE, "the leader has not even read what was asked before"
        cluster.pause(leader)
        for node_id in followers:
            cluster.resume(node_id)
        eventually(lambda: cluster.leaders(TOPIC)[0] not in (leader, -1), "another leader", seconds=60)
        load.wait_for_acknowledgements(500)
        time.sleep(max(0.0, ASLEEP_SECONDS - (time.monotonic() - asked_by)))
        cluster.resume(leader)
        assert asked.answer(seconds=60) is not ErrorCode.NONE, "acknowledged by a leader whose time was over"
        assert tail.produce(LEADER) is not ErrorCode.NONE, "a record was taken by a leader whose time was over"
        load.wait_for_acknowledgements(500)
        load.stop()
        group.stop([load])
        cluster.wait_isr(TOPIC, seconds=60)
        places = read_everything(cluster.bootstrap, leaders_change=True)
        assert judge([load], places) == []
        assert group.problems == []
        survivors = sorted(record.number for record in places if record.producer == TAIL)
        assert survivors == list(range(len(survivors))) and len(survivors) % BATCH == 0, "batches from the first one on"
        assert len(survivors) < BATCHES * BATCH, "more of the tail is there than was under way"
        assert not any(record.producer == ASKED for record in places)
        for node_id in cluster.nodes:
            cluster.stop(node_id)
        assert replicas_differ(cluster) == []


@pytest.mark.chaos
@pytest.mark.timeout(240)
def test_a_controller_that_slept_longer_than_its_session_decides_nothing_and_its_metadata_is_that_of_the_others() -> (
    None
):
    with Cluster(3, **SHORT_SESSIONS) as cluster:
        create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
        cluster.wait_isr(TOPIC)
        load = Load(cluster.bootstrap)
        load.wait_for_acknowledgements(500)
        controller = active_controller(cluster)
        others = [node_id for node_id in cluster.nodes if node_id != controller]
        cluster.pause(controller)
        began = time.monotonic()
        # While it sleeps, the others elect and decide. When it wakes up, all its sessions have ended by its own clock.
        awake = ",".join(cluster.address(node_id) for node_id in others)
        eventually(lambda: cluster.leaders(TOPIC)[0] not in (controller, -1), "other leaders", seconds=60)
        create_topic(awake, 2, "decided")
        time.sleep(max(0.0, ASLEEP_SECONDS - (time.monotonic() - began)))
        cluster.resume(controller)
        cluster.wait_isr(TOPIC, seconds=60)
        create_topic(cluster.bootstrap, 3, "decided-later")
        load.wait_for_acknowledgements(500)
        load.stop()
        assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []

        def image(node_id: int) -> object:
            topics = cluster.metadata(None, node_id).topics
            return sorted(
                (t.name, [(p.leader_id, p.leader_epoch, sorted(p.isr_nodes)) for p in t.partitions]) for t in topics
            )

        for name in ("decided", "decided-later", TOPIC):
            eventually(lambda name=name: name in str(image(controller)), f"{name} to be known to the sleeper", 30)
        eventually(lambda: image(controller) == image(others[0]) == image(others[1]), "all to see the same", 30)
        assert all(cluster.is_running(node_id) for node_id in cluster.nodes)
