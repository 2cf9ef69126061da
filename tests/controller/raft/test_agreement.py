"""Lists of voters that contradict each other are reported before one part of the voters can decide without the others."""

from __future__ import annotations

import pytest

from ottla.controller.raft.agreement import (
    BETWEEN_RESPONSES_MS_MAX,
    QuorumDisagreement,
    Rejections,
    check_changed_voters,
)
from ottla.controller.raft.voters import VoterHistory
from tests.controller.raft.cluster import static_voters


@pytest.mark.parametrize(
    ("before", "now", "safe"),
    [
        ((), (1,), True),
        ((1, 2, 3), (1, 2, 3), True),
        ((1, 2, 3), (1, 2), True),
        ((1, 2), (1, 2, 3), True),
        ((1, 2, 3), (1, 2, 3, 4), True),
        ((1, 2, 3), (1, 2, 4), False),
        ((1,), (1, 2, 3), False),
        ((1, 2, 3), (3,), False),
        ((1, 2, 3), (1, 2, 3, 4, 5), False),
        ((1, 2, 3), (4, 5, 6), False),
    ],
)
def test_a_list_may_change_only_where_every_two_majorities_have_a_member_in_common(
    before: tuple[int, ...], now: tuple[int, ...], safe: bool
) -> None:
    voters = VoterHistory(static_voters(*now))
    if safe:
        check_changed_voters(frozenset(before), voters)
    else:
        with pytest.raises(QuorumDisagreement, match="one voter at a"):
            check_changed_voters(frozenset(before), voters)


def test_a_long_time_between_two_responses_counts_as_the_longest_that_may_lie_between_them() -> None:
    rejections = Rejections()
    rejections.record_leader(True, 0)
    rejections.record_leader(True, BETWEEN_RESPONSES_MS_MAX + 60_000)
    assert rejections.has_duplicate_node_id(BETWEEN_RESPONSES_MS_MAX - 1)
    assert not rejections.has_duplicate_node_id(BETWEEN_RESPONSES_MS_MAX)
    rejections.record_leader(False, BETWEEN_RESPONSES_MS_MAX + 60_001)
    assert not rejections.has_duplicate_node_id(0)
