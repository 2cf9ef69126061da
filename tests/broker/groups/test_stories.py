"""The story of a group says who joined, who went, and why it rebalanced."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.stories import STORIES_PRINTED_MAX
from ottla.broker.groups.classic import rebalance
from ottla.broker.groups.group_stories import COMMITTED, GroupStories
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.group_records import GroupMetadataKey
from ottla.server.story import ENTRIES_MAX, Asker
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness
from tests.broker.groups.test_log_lines import joined, stable


def story(harness: GroupCoordinatorHarness, group: str = "g") -> list[str]:
    """Return the lines of the story without their times."""
    return [f"{line.cause} {line.client_id}: {line.text}" for line in harness.coordinator.stories.of(group)]


def test_a_group_that_two_members_join_and_one_leaves() -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    b = joined(harness, "b")
    a.join()
    a.sync(assignments={each.member_id: b"" for each in (a, b)})
    b.leave()
    lines = story(harness)
    assert lines[1].startswith("JoinGroup a: Dynamic member with unknown member id joins group g in Empty state")
    assert (
        "JoinGroup a: Preparing to rebalance group g in state Empty with old generation 0 (reason: adding new member a-1"
        in lines[3]
    )
    assert "timer join : Stabilized group g generation 1 with 1 members" in lines
    assert "SyncGroup : Generation 1 was written: 1 members, protocol range, leader a-1" in lines
    assert any(line.startswith("JoinGroup b: Preparing to rebalance group g in state Stable") for line in lines)
    assert lines[-2].startswith("LeaveGroup : Member b-2 has left group g through explicit LeaveGroup")
    assert "with old generation 2 (reason: explicit removal of members b-2 on LeaveGroup)" in lines[-1]


def test_a_member_whose_session_ends_is_named_with_the_timer() -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a", session=10_000)
    stable(harness, a)
    harness.clock.advance(10_001)
    lines = story(harness)
    assert "timer session : Member a-1 in group g has failed, removing it from the group" in lines
    assert "timer session : Group g with generation 2 is now empty" in lines


def test_a_thousand_commits_leave_the_reasons_in_the_story() -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    before = story(harness)
    for offset in range(1_000):
        a.commit(offsets={("t", 0): offset})
    line = harness.coordinator.stories.of("g")
    assert story(harness)[:-1] == before and len(line) < ENTRIES_MAX
    assert (line[-1].text, line[-1].times) == (COMMITTED, 1_000)


def test_records_that_the_log_rejects_are_said_not_to_be_there() -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    a.commit(offsets={("t", 0): 7})
    assert "1 records of the decision before were not appended" in story(harness)[-1]


def test_a_deleted_group_says_who_deleted_it() -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    a.commit(offsets={("t", 0): 3})
    a.leave()
    harness.delete_groups(["g"], Asker("ops", "/10.0.0.9"))
    assert story(harness)[-2:] == [
        "DeleteGroups ops: The committed offset of t-0 was removed",
        "DeleteGroups ops: The group was removed from the log",
    ]


def test_a_consumer_group_has_its_epochs_and_why_they_rose() -> None:
    harness = GroupCoordinatorHarness()
    harness.topics = {"t": 4}
    ConsumerMember(harness, "m1").beat()
    lines = story(harness)
    assert any("Member m1 joins the consumer group using the consumer protocol." in line for line in lines)
    assert any(line.endswith("The group is at epoch 2") for line in lines)
    assert any("Member m1 is at epoch 2, STABLE" in line for line in lines)
    assert {line.split()[0] for line in lines} == {"ConsumerGroupHeartbeat"}


def test_an_assertion_in_a_decision_prints_the_story(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = GroupCoordinatorHarness()
    joined(harness, "a")

    def broken(*args: object) -> None:
        raise AssertionError("no such transition")

    monkeypatch.setattr(rebalance, "prepare", broken)
    monkeypatch.setattr(rebalance, "complete_if_all_joined", broken)
    caplog.clear()
    with pytest.raises(AssertionError):
        joined(harness, "b")
    assert any("The story of group g:" in record.getMessage() for record in caplog.records)
    assert any("adding new member a-1" in record.getMessage() for record in caplog.records)


def test_an_assertion_in_a_timer_prints_the_story(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = GroupCoordinatorHarness()
    stable(harness, joined(harness, "a"))
    monkeypatch.setattr(rebalance, "remove_member", lambda group, member: 1 / 0)
    caplog.clear()
    harness.clock.advance(10_001)
    assert any("The story of group g:" in record.getMessage() for record in caplog.records)


def test_an_assertion_in_a_heartbeat_prints_the_story(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    monkeypatch.setattr(rebalance, "restart_session", lambda *args: (_ for _ in ()).throw(AssertionError))
    with pytest.raises(AssertionError):
        a.heartbeat()
    assert any("The story of group g:" in record.getMessage() for record in caplog.records)


def test_a_record_that_cannot_be_replayed_prints_the_story(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    harness = GroupCoordinatorHarness()
    a = joined(harness, "a")
    stable(harness, a)
    monkeypatch.setattr(harness.shard.offsets, "replay_commit", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        a.commit(offsets={("t", 0): 1})
    assert any("The story of group g:" in record.getMessage() for record in caplog.records)


def test_no_more_stories_are_printed_than_the_log_can_take(caplog: pytest.LogCaptureFixture) -> None:
    stories = GroupStories("group", lambda: 0)
    stories.print_of([(GroupMetadataKey(group=str(number)), None) for number in range(100)])
    assert len([r for r in caplog.records if "The story of group" in r.getMessage()]) == STORIES_PRINTED_MAX
