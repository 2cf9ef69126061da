"""Regressions that seeds have found, step by step on a simulated cluster: the real nodes, in virtual time (invariant 8)."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.node.formatting import NotFormatted
from ottla.node.node import Node
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.server.network.client import Channel
from ottla.storage.directories.log_dirs import read_meta_properties
from tests.broker.records import batch
from tests.histories import Violation
from tests.sim.cluster import BROKER_PORT, properties_of
from tests.sim.disk import SimDisk
from tests.sim.formatting import format_node
from tests.sim.harness import APART, TOGETHER, TOPIC, SimClusterHarness
from tests.sim.loop import run
from tests.sim.mutants import MUTANTS, applied


def test_a_broker_with_a_replaced_disk_may_lead_again() -> None:
    """The controller elects no replica in a directory that it does not know: the broker has to report the new one."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        replaced = harness.leader()
        await replaced.crash(power=False)
        replaced.host.disk.remove_tree("/data")
        replaced.boot()
        await harness.until("it is in sync", lambda: set(harness.registration.isr) == {1, 2, 3} and replaced.is_serving)
        for node in harness.cluster.brokers:
            if node is not replaced:
                await node.stop()
        await harness.until("it leads", lambda: harness.registration.leader == replaced.number)

    run(main())


def test_a_broker_that_starts_leads_nothing_by_the_metadata_of_before_its_crash() -> None:
    """The replica would append, in an epoch that the others know, at offsets where it has lost records."""

    async def main() -> None:
        harness = SimClusterHarness(APART, {"broker.session.timeout.ms": "60000"})
        await harness.begin()
        leader = harness.leader()
        await leader.crash(power=True)
        leader.boot()
        led = []
        for _ in range(3000):
            await asyncio.sleep(0.001)
            led += [p.leader_epoch for p in leader.partitions() if p.leader_log is not None and not leader.is_serving]
        assert leader.is_serving and not led

    run(main())


@pytest.mark.parametrize("days", [3, -3])
def test_a_leader_whose_clock_is_set_right_takes_no_follower_for_late_but_one_that_is(days: int) -> None:
    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        leader = harness.leader()
        (partition,) = (p for p in leader.partitions() if p.topic == TOPIC)
        # In the one turn in which the followers do not have the record.
        partition.append(batch([b"x"]), 1, leader.host.clock.wall_ms())
        leader.host.clock.skew_ms = days * 24 * 3600 * 1000
        replicas = leader.server.broker.replicas
        replicas.shrink_isrs()
        assert partition.isr.proposed is None
        late = next(iter(partition.followers.values()))
        late.log_end_offset, late.last_caught_up_ms = 0, leader.host.clock.mono_ms() - 30_001
        replicas.shrink_isrs()
        assert partition.isr.proposed == set(partition.isr.members) - {late.broker_id}

    run(main())


def test_a_new_leader_reports_no_end_below_the_one_that_the_last_leader_reported() -> None:
    """Its watermark is one fetch old, and it cannot reach the replica that it has to wait for."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        await harness.begin()
        old, new, cut_off = (harness.cluster.by_number[n] for n in harness.registration.replicas)
        hub = harness.cluster.hub
        hub.partition([cut_off.host.name], [old.host.name, new.host.name])
        (partition,) = (p for p in old.partitions() if p.topic == TOPIC)
        for _ in range(5):
            partition.append(batch([b"x"]), 1, old.host.clock.wall_ms())
        (successor,) = (p for p in new.partitions() if p.topic == TOPIC)
        await harness.until("it has them", lambda: successor.log is not None and successor.log.log_end_offset == 5)
        await old.crash(power=False)
        await harness.until("it leads", lambda: successor.leader_log is not None)

        async def end(version: int) -> tuple[int, int]:
            asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=asked)])
            channel = Channel(harness.admin.world, new.host.name, BROKER_PORT, "asks")
            answer = (await channel.request(request, version=version)).topics[0].partitions[0]
            channel.close()
            return answer.error_code, answer.offset

        assert await end(5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await end(4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1), "what older clients know"
        hub.heal()
        await harness.until("it has caught up", lambda: successor.log.high_watermark >= successor.epoch_start_offset)
        assert await end(5) == (ErrorCode.NONE, 5)

    run(main())


async def commit_beside_a_proposed_isr() -> None:
    """A leader that is cut off from the controller and from one follower wants to go on with the other follower alone.

    Until the controller has agreed, it may elect the follower that lags (KAFKA-13582, invariant 6).
    """
    settings = {"replica.lag.time.max.ms": "2500", "broker.session.timeout.ms": "9000"}
    harness = SimClusterHarness(APART, {**settings, "broker.heartbeat.interval.ms": "2000"})
    await harness.begin()
    leader, lagging, other = (harness.cluster.by_number[n] for n in harness.registration.replicas)
    controller = harness.cluster.by_number[4]
    harness.cluster.hub.partition([leader.host.name], [lagging.host.name, controller.host.name])
    (partition,) = (p for p in leader.partitions() if p.topic == TOPIC)
    await asyncio.sleep(0.5)
    partition.append(batch([b"x"]), -1, leader.host.clock.wall_ms())
    await harness.until(
        "it goes on without the one that lags",
        lambda: partition.isr.proposed is not None or lagging.number not in partition.isr.members,
    )
    partition.append(batch([b"y"]), -1, leader.host.clock.wall_ms())
    await asyncio.sleep(0.5)
    harness.invariants.check()
    await harness.until("another leads", lambda: harness.registration.leader not in (leader.number, -1))
    (successor,) = (p for p in harness.leader().partitions() if p.topic == TOPIC)
    await harness.until("it knows", lambda: successor.leader_log is not None)
    harness.invariants.check()
    assert other.is_serving


def test_what_only_a_proposed_isr_has_is_not_committed() -> None:
    run(commit_beside_a_proposed_isr())
    with applied("isr-before-answer"), pytest.raises(Violation) as caught:
        run(commit_beside_a_proposed_isr())
    assert MUTANTS["isr-before-answer"].is_caught_by(caught.value.number)


async def metadata_comes_after_the_proposal_that_was_made_on_it() -> None:
    """The controller has already made the next ISR, and its response is in flight: a replica that has joined by it may lead."""
    harness = SimClusterHarness(APART, {"replica.lag.time.max.ms": "1000"})
    await harness.begin()
    leader, other, joining = (harness.cluster.by_number[n] for n in harness.registration.replicas)
    hub = harness.cluster.hub
    (partition,) = (p for p in leader.partitions() if p.topic == TOPIC)
    hub.partition([leader.host.name], [joining.host.name])
    partition.append(batch([b"x"]), -1, leader.host.clock.wall_ms())
    without = {leader.number, other.number}
    await harness.until("it is out", lambda: set(harness.registration.isr) == partition.isr.members == without)
    known = harness.registration
    await harness.until("the leader knows", lambda: partition.isr.partition_epoch == known.partition_epoch)
    hub.heal()
    hub.cut("n4", leader.host.name)
    await harness.until("it joins", lambda: len(harness.registration.isr) == 3)
    assert partition.isr.proposed == {1, 2, 3} and partition.isr.members == without
    hub.partition([leader.host.name], [joining.host.name])
    assert partition.log is not None
    partition.become_leader(
        partition.log,
        known.leader_epoch,
        known.partition_epoch,
        known.replicas,
        known.isr,
        leader.host.clock.mono_ms(),
    )
    for record in (b"y", b"z"):
        partition.append(batch([record]), -1, leader.host.clock.wall_ms())
        # The leader also waits for a replica that is about to join, until that lags for too long.
        await asyncio.sleep(1.1 if record == b"y" else 0.2)
    harness.invariants.check()


def test_metadata_that_comes_late_forgets_no_proposed_isr() -> None:
    run(metadata_comes_after_the_proposal_that_was_made_on_it())
    with applied("proposal-forgotten"), pytest.raises(Violation) as caught:
        run(metadata_comes_after_the_proposal_that_was_made_on_it())
    assert MUTANTS["proposal-forgotten"].is_caught_by(caught.value.number)


def test_a_controller_whose_disk_has_failed_does_not_keep_a_core_busy_with_sessions_that_end() -> None:
    async def main() -> None:
        harness = SimClusterHarness(TOGETHER)
        await harness.begin()
        active = harness.cluster.active_controller
        assert active is not None and active.server is not None
        active.host.disk.fail_after(1)
        for node in harness.cluster.nodes:
            if node is not active:
                await node.crash(power=False)
        await asyncio.sleep(20)
        assert active.server.metadata.raft.failure is not None

    run(main())


def test_a_node_that_its_loop_has_dropped_during_its_start_runs_nothing_more() -> None:
    """An ended process cannot wait: the garbage collector closes its coroutines, which must allow that."""

    async def main() -> None:
        harness = SimClusterHarness(APART)
        harness.cluster.start()
        assert await harness.cluster.all_serve(10)
        node = harness.cluster.by_number[1]
        for milliseconds in range(0, 40, 3):
            await node.crash(power=False)
            dropped = Node(node.host.boot(), node.properties).start()
            task = node.host.lane.context.run(asyncio.ensure_future, dropped)
            await asyncio.sleep(milliseconds / 1000)
            if not task.done():
                dropped.close()
            task.cancel()
            await asyncio.wait([task], timeout=1)

    run(main())


async def a_voter_starts_while_its_disk_is_not_mounted() -> None:
    """Two of three replicas commit a topic; then one of them has an empty disk, and the other has not restarted yet."""
    harness = SimClusterHarness(TOGETHER)
    await harness.begin()
    first, second, third = harness.cluster.nodes
    await third.crash(power=False)
    assert await harness.admin.spawn(harness.admin.create("precious", 1, {}, 2), "creates")
    harness.invariants.check()
    for node in (first, second):
        await node.crash(power=False)
    mounted, second.host.disk = second.host.disk, second.host.empty_disk(random.Random(2))
    for node in (second, third):
        node.boot()
    for _ in range(100):
        await asyncio.sleep(0.1)
        harness.invariants.check()
    assert isinstance(second.failure, NotFormatted) and harness.cluster.active_controller is None
    await second.crash(power=False)
    second.host.disk = mounted
    for node in (first, second):
        node.boot()
    assert await harness.cluster.all_serve(30)
    active = harness.cluster.active_controller
    assert active is not None and active.server is not None
    assert active.server.metadata.loader.image.topics.by_name("precious") is not None


def test_a_voter_whose_disk_is_not_mounted_elects_no_leader_that_lacks_committed_metadata() -> None:
    run(a_voter_starts_while_its_disk_is_not_mounted())
    with applied("formats-by-itself"), pytest.raises(Violation) as caught:
        run(a_voter_starts_while_its_disk_is_not_mounted())
    assert MUTANTS["formats-by-itself"].is_caught_by(caught.value.number)


@pytest.mark.parametrize("path", ["/data", "/var/lib/kafka/data"])
def test_a_power_loss_takes_no_formatted_log_directory(path: str) -> None:
    for seed in range(20):
        disk = SimDisk(random.Random(seed), lambda: 0)
        properties = properties_of(1, {1: "broker,controller"}, {"log.dirs": path})
        cluster_id = format_node(disk, properties, seed)
        disk.crash(power=True)
        meta = read_meta_properties(disk, path)
        assert meta is not None and meta.cluster_id == cluster_id, f"seed {seed}"
