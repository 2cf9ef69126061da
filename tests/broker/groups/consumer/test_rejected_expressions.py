"""A log that takes no records: regular expressions are resolved again until their topics can be written, but not at every
heartbeat.
"""

from __future__ import annotations

import pytest

from ottla.broker.groups.consumer.regexes import REFRESH_MIN_INTERVAL_MS
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.broker.groups.consumer.member import ConsumerMember
from tests.broker.groups.harness import GroupCoordinatorHarness

WAITING_MS, INTERVAL_MS = 500, 5_000


@pytest.fixture
def harness() -> GroupCoordinatorHarness:
    harness = GroupCoordinatorHarness(waiting_heartbeat_interval_ms=WAITING_MS)
    harness.topics = {"t-1": 1, "u-1": 1}
    return harness


def waiting_member(harness: GroupCoordinatorHarness) -> ConsumerMember:
    """Return a member that has joined, and the topics of whose expression could not be written."""
    member = ConsumerMember(harness, "a", regex="t-.*")
    assert member.beat().heartbeat_interval_ms == WAITING_MS
    harness.log.refuse = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
    harness.clock.advance(WAITING_MS)
    return member


def test_they_are_looked_for_again_at_the_interval_of_all_groups_and_the_log_has_one_line(
    harness: GroupCoordinatorHarness, caplog: pytest.LogCaptureFixture
) -> None:
    member = waiting_member(harness)
    end = harness.log.end_offset(harness.tp)
    for _ in range(3):
        answer = member.beat()
        assert (answer.error_code, answer.heartbeat_interval_ms) == (ErrorCode.NONE, INTERVAL_MS)
        harness.clock.advance(REFRESH_MIN_INTERVAL_MS + 1)
    assert harness.log.end_offset(harness.tp) == end
    warnings = [entry.getMessage() for entry in caplog.records if entry.levelname == "WARNING"]
    assert len(warnings) == 1
    assert warnings[0].startswith("[GroupId g] Topics of regular expressions could not be written")
    harness.log.refuse = None
    member.beat()
    harness.clock.advance(1)
    member.beat()
    assert member.owned == {"t-1": {0}}


def test_an_expression_that_comes_after_they_were_written_is_awaited_as_any_other(
    harness: GroupCoordinatorHarness,
) -> None:
    member = waiting_member(harness)
    harness.log.refuse = None
    harness.clock.advance(REFRESH_MIN_INTERVAL_MS)
    member.beat()
    harness.clock.advance(WAITING_MS)
    other = ConsumerMember(harness, "b", regex="u-.*")
    for _ in range(2):
        assert other.beat().heartbeat_interval_ms == WAITING_MS
        harness.clock.advance(WAITING_MS)
    other.beat()
    assert other.owned == {"u-1": {0}}
