"""The group coordinator's metrics, while groups of both protocols come and go."""

from __future__ import annotations

from ottla.broker.metrics.coordinator import CLASSIC, METRICS, coordinator_metrics, transaction_metrics
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import PARKED, GroupCoordinatorHarness
from tests.broker.groups.share.harness import ShareGroupHarness
from tests.broker.groups.streams.member import StreamsMember
from tests.broker.groups.streams.topologies import stateless
from tests.broker.transactions.harness import TransactionalProducer, TransactionCoordinatorHarness


def metrics(harness: GroupCoordinatorHarness) -> dict[str, float]:
    return {
        family.name.removeprefix(f"{METRICS}_")
        + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in coordinator_metrics(harness.coordinator)
        for sample in family.samples
        if sample.value
    }


def test_groups_are_counted_by_protocol_and_state_and_their_rebalances_and_offsets_as_they_happen() -> None:
    harness = GroupCoordinatorHarness(group_initial_rebalance_delay_ms=0)
    harness.topics = {"t": 2}
    assert metrics(harness) == {"num_partitions[active]": 1}
    member = ConsumerMember(harness, "a")
    member.beat()
    classic = harness.client("m", group="c", version=3)
    assert classic.join() is PARKED
    harness.clock.advance(0)
    classic.sync(assignments={classic.member_id: b"x"})
    classic.commit(offsets={("t", 0): 5})
    member.commit({("t", 0): 5, ("t", 1): 6})
    assert metrics(harness) == {
        "num_partitions[active]": 1,
        f"{CLASSIC}_numgroups": 1,
        f"{CLASSIC}_numgroupsstable": 1,
        "group_count[classic]": 1,
        "group_count[consumer]": 1,
        "consumer_group_count[stable]": 1,
        "group_completed_rebalance_count": 1,
        "consumer_group_rebalance_count": 1,
        "offset_commit_count": 3,
    }
    member.leave(-1)
    classic.leave()
    classic.delete_offsets(partitions=[("t", 0)])
    after = metrics(harness)
    assert after["consumer_group_count[empty]"] == after[f"{CLASSIC}_numgroupsempty"] == 1
    assert after["offset_deletion_count"] == 1


def test_share_and_streams_groups_are_counted_like_consumer_groups() -> None:
    share = ShareGroupHarness()
    share.join("a")
    assert metrics(share)["group_count[share]"] == metrics(share)["share_group_count[stable]"] == 1
    assert metrics(share)["share_group_rebalance_count"] == 1
    streams = GroupCoordinatorHarness()
    StreamsMember(streams, "a", stateless("missing")).beat()
    assert metrics(streams)["group_count[streams]"] == metrics(streams)["streams_group_count[notready]"] == 1
    assert metrics(streams)["streams_group_rebalance_count"] == 1


def test_a_broker_that_coordinates_nothing_has_zeros() -> None:
    harness = GroupCoordinatorHarness()
    harness.coordinator.unload(0)
    assert metrics(harness) == {}


def test_a_transaction_that_stays_prepared_because_its_marker_is_refused_is_counted() -> None:
    harness = TransactionCoordinatorHarness()
    producer = TransactionalProducer(harness)
    producer.init()
    producer.add("t-0")
    harness.marker_behaviour("t-0", "TRANSACTION_COORDINATOR_FENCED")
    producer.end(True)
    [family] = transaction_metrics(harness.coordinator)
    assert [sample.value for sample in family.samples] == [1]
