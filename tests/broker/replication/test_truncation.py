"""The offset to which a follower's log goes back: each row has two epoch histories and the expected rest (invariant 10)."""

from __future__ import annotations

import pytest

from ottla.broker.replication.truncation import truncation_offset
from ottla.protocol.messages.fetch import EpochEndOffset

NOTHING = EpochEndOffset(-1, -1)


@pytest.mark.parametrize(
    ("case", "leader", "own", "log_end_offset", "left"),
    [
        ("the old leader wrote more in its epoch than was replicated", EpochEndOffset(5, 100), EpochEndOffset(5, 120), 120, 100),
        ("the follower has less of the epoch than the leader", EpochEndOffset(5, 100), EpochEndOffset(5, 80), 90, 80),
        ("the leader does not know our epoch: back to the end of our epoch before it", EpochEndOffset(4, 70), EpochEndOffset(3, 60), 90, 60),
        ("all that we have is of later epochs", EpochEndOffset(2, 40), NOTHING, 90, 40),
        ("an empty log stays empty", EpochEndOffset(2, 40), NOTHING, 0, 0),
        ("an epoch led without an append: nothing goes", EpochEndOffset(4, 100), EpochEndOffset(4, 90), 90, 90),
    ],
)  # fmt: skip
def test_a_log_goes_back_to_where_it_agrees(
    case: str, leader: EpochEndOffset, own: EpochEndOffset, log_end_offset: int, left: int
) -> None:
    assert truncation_offset(leader, own, log_end_offset) == left, case


def test_truncation_never_asks_for_more_than_the_log_has() -> None:
    for leader_end in range(0, 50, 7):
        for own_end in range(0, 50, 7):
            assert truncation_offset(EpochEndOffset(1, leader_end), EpochEndOffset(1, own_end), 20) <= 20
