"""The log shows an operator why a rebalance began, who came, who went, and how it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from tests.broker.groups.harness import PARKED, GroupClient, GroupCoordinatorHarness

Read = Callable[[], list[str]]


@pytest.fixture
def read(caplog: pytest.LogCaptureFixture) -> Read:
    """Return the lines since the last call, with their levels."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        found = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
        caplog.clear()
        return found

    return lines


def joined(harness: GroupCoordinatorHarness, name: str, **settings: object) -> GroupClient:
    """Return a client that has its member id and waits for the others."""
    client = harness.client(name, **settings)
    client.join()
    if client.instance is None:
        assert client.join() == PARKED
    return client


def stable(harness: GroupCoordinatorHarness, *clients: GroupClient) -> None:
    harness.clock.advance(3_000)
    harness.clock.advance(3_000)  # another delay, for the members that joined during the first
    for client in clients:
        client.sync(assignments={each.member_id: b"" for each in clients})


def test_the_first_member_of_a_group(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    read()
    a = joined(harness, "a")
    assert read() == [
        "INFO Dynamic member with unknown member id joins group g in Empty state;"
        " created a new member id a-1 and requested the member to rejoin with it",
        "INFO Pending dynamic member with id a-1 joins group g",
        "INFO Preparing to rebalance group g in state Empty with old generation 0"
        " (reason: adding new member a-1; client reason: not provided)",
    ]
    stable(harness, a)
    assert read() == [
        "INFO Stabilized group g generation 1 with 1 members",
        "INFO Assignment received from leader a-1 for group g for generation 1; the group has 1 members, 0 of them static",
    ]


def test_the_last_member_leaves(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    read()
    a.leave()
    assert read() == [
        "INFO Member a-1 has left group g through explicit LeaveGroup; client reason: not provided",
        "INFO Preparing to rebalance group g in state Stable with old generation 1"
        " (reason: explicit removal of members a-1 on LeaveGroup)",
        "INFO Group g with generation 2 is now empty",
    ]


def test_a_member_that_falls_silent(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a, b = joined(harness, "a", session=60_000), joined(harness, "b", session=10_000)
    stable(harness, a, b)
    read()
    harness.clock.advance(11_000)
    lines = read()
    assert lines == [
        f"INFO Member {b.member_id} in group g has failed, removing it from the group",
        "INFO Preparing to rebalance group g in state Stable with old generation 1"
        f" (reason: removing member {b.member_id} on heartbeat expiration)",
    ]
    a.join()
    assert "INFO Stabilized group g generation 2 with 1 members" in read()


def test_a_member_that_does_not_rejoin_in_time(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a, b = joined(harness, "a", session=300_000), joined(harness, "b", session=300_000)
    stable(harness, a, b)
    a.join()
    read()
    harness.clock.advance(61_000)
    assert read() == [
        f"INFO Group g removed dynamic members who have not joined: {b.member_id}",
        "INFO Stabilized group g generation 2 with 1 members",
    ]


def test_a_member_that_joins_and_never_syncs(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a, b = joined(harness, "a", session=300_000), joined(harness, "b", session=300_000)
    stable(harness, a)
    read()
    harness.clock.advance(61_000)
    assert (
        "INFO Preparing to rebalance group g in state Stable with old generation 1"
        f" (reason: removing members {b.member_id} on pending sync request expiration)"
    ) in read()


def test_a_member_id_that_is_never_used(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a = harness.client("a")
    a.join()
    read()
    harness.clock.advance(11_000)
    assert read() == ["INFO Pending member a-1 in group g has been removed after session timeout expiration"]


def test_a_static_member_comes_back_as_a_new_process(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a", instance="one")
    stable(harness, a)
    read()
    harness.client("a", instance="one").join()
    assert read() == [
        "INFO Static member with group instance id one and unknown member id joins group g in Stable state;"
        f" replacing the previously mapped member {a.member_id} by one-2",
    ]


def test_offsets_expire_and_the_group_with_them(read: Read) -> None:
    harness = GroupCoordinatorHarness(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    harness.client("a").commit(offsets={("t", 0): 5})
    read()
    harness.clock.advance(80_000)
    assert read() == [
        "INFO Removed 1 expired offsets of group g",
        "INFO Group g transitioned to Dead in generation 0: its offsets expired",
    ]


def test_a_deleted_group(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    harness.client("a").commit(offsets={("t", 0): 5})
    read()
    harness.delete_groups(["g", "unknown"])
    assert read() == ["INFO The following groups were deleted: g"]


def test_the_coordinator_is_loaded_and_unloaded(read: Read) -> None:
    harness = GroupCoordinatorHarness()
    harness.client("a").commit(offsets={("t", 0): 5})
    read()
    harness.restart()
    assert read() == [
        "INFO Unloading metadata for __consumer_offsets-0 with epoch 1",
        "INFO Scheduling loading of metadata from __consumer_offsets-0 with epoch 2",
        "INFO Finished loading of metadata from __consumer_offsets-0 with epoch 2 in 0 ms; loaded up to offset 0",
    ]
