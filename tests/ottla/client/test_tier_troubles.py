"""The states of remote storage say what is wrong, once for all partitions with the same reason."""

from __future__ import annotations

from typing import Any

from ottla.cli.doctor.findings import KINDS
from ottla.client.troubles import LAG_S_MAX, TIER_BEHIND, TIER_WAITS, tier_troubles


def state(**changed: Any) -> dict[str, Any]:
    return {
        "node": 1, "topic": "events", "partition": 0, "failing": False, "waits": None, "lag_seconds": 3.0,
    } | changed  # fmt: skip


def test_what_is_well_or_not_said_is_no_trouble() -> None:
    quiet = "a transaction has not ended at offset 7"
    assert [*tier_troubles([state(), {}, state(lag_seconds="x"), state(waits=quiet)])] == []


def test_partitions_with_the_same_reason_are_one_trouble() -> None:
    rows = [state(partition=index, failing=True, waits="the store is away") for index in range(3)]
    rows.append(state(partition=3, failing=True, waits="another reason"))
    first, second = tier_troubles(rows)
    assert first == (
        TIER_WAITS,
        "events",
        "segments of 3 partitions, such as 0, are not copied to remote storage at node 1: the store is away",
    )
    assert second.text == "segments of partition 3 are not copied to remote storage at node 1: another reason"


def test_what_waits_long_without_a_failure_is_behind_and_says_its_reason() -> None:
    (found,) = tier_troubles([state(lag_seconds=LAG_S_MAX + 1, waits="a transaction has not ended at offset 7")])
    assert found.kind == TIER_BEHIND
    assert found.text == (
        "segments of partition 0 have waited 901 s for their copy to remote storage at node 1: a transaction has not ended at offset 7"
    )


def test_a_broker_without_remote_storage_is_a_trouble_of_the_topic() -> None:
    (found,) = tier_troubles([{"node": 2, "topic": "events", "failing": True, "waits": "it is off"}])
    assert found.text == "segments are not copied to remote storage at node 2: it is off"


def test_the_doctor_has_findings_for_each() -> None:
    assert {TIER_WAITS, TIER_BEHIND} <= KINDS.keys()
