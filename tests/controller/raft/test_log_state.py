"""The core's view of the log: divergence, snapshots, truncation."""

from __future__ import annotations

import pytest

from ottla.controller.raft.log_state import Diverging, LogState, NeedsSnapshot, OffsetAndEpoch


def log(*epochs: tuple[int, int], end: int, start: int = 0, snapshots: tuple[tuple[int, int], ...] = ()) -> LogState:
    """Return a log with these epochs, as (epoch, start offset)."""
    return LogState(start, end, list(epochs), [OffsetAndEpoch(*snapshot) for snapshot in snapshots], end)


LEADER = log((1, 0), (3, 10), (4, 20), end=30)
TRIMMED = log((3, 12), (4, 20), end=30, start=12, snapshots=((12, 3), (25, 4)))


@pytest.mark.parametrize(
    ("leader", "follower", "expected"),
    [
        (LEADER, (0, 0), None),
        (LEADER, (30, 4), None),
        (LEADER, (15, 3), None),
        (LEADER, (10, 1), None),
        # The follower has a longer tail of an old epoch: it has to end that epoch where the leader does.
        (LEADER, (15, 1), Diverging(OffsetAndEpoch(10, 1))),
        (LEADER, (25, 3), Diverging(OffsetAndEpoch(20, 3))),
        # The leader does not have the epoch: it answers with its next lower epoch, and the end of that.
        (LEADER, (15, 2), Diverging(OffsetAndEpoch(10, 1))),
        (LEADER, (35, 4), Diverging(OffsetAndEpoch(30, 4))),
        # The offset is not in the log any more, or is of an epoch that the log never had.
        (TRIMMED, (0, 0), NeedsSnapshot(OffsetAndEpoch(25, 4))),
        (TRIMMED, (11, 3), NeedsSnapshot(OffsetAndEpoch(25, 4))),
        (TRIMMED, (12, 2), NeedsSnapshot(OffsetAndEpoch(25, 4))),
        (TRIMMED, (12, 3), None),
        (TRIMMED, (15, 1), NeedsSnapshot(OffsetAndEpoch(25, 4))),
        (TRIMMED, (21, 4), None),
    ],
)
def test_what_a_leader_answers_to_a_follower(leader: LogState, follower: tuple[int, int], expected: object) -> None:
    assert leader.validate(OffsetAndEpoch(*follower)) == expected


def test_an_empty_follower_is_not_given_the_bootstrap_snapshot() -> None:
    assert log((1, 0), end=3, snapshots=((0, 0),)).validate(OffsetAndEpoch(0, 0)) is None


def test_the_follower_truncates_to_where_both_logs_agree_at_most() -> None:
    follower = log((1, 0), (2, 8), end=15)
    assert follower.truncation_point(OffsetAndEpoch(10, 1)) == 8, "our own epoch 1 ends earlier than the leader's"
    assert follower.truncation_point(OffsetAndEpoch(5, 1)) == 5
    assert log((1, 0), (3, 8), end=15).truncation_point(OffsetAndEpoch(12, 2)) == 8


def test_truncating_forgets_epochs_and_flushes() -> None:
    state = log((1, 0), (2, 8), end=15)
    state.truncate_to(8)
    assert (state.end, state.epochs, state.flushed_offset, state.generation) == (OffsetAndEpoch(8, 1), [(1, 0)], 8, 1)
    state.append(8, 9, 3)
    assert not state.is_flushed


def test_appending_out_of_order_is_our_own_mistake() -> None:
    state = log((2, 0), end=5)
    with pytest.raises(AssertionError):
        state.append(6, 6, 2)
    with pytest.raises(AssertionError):
        state.append(5, 5, 1)


def test_a_log_that_starts_at_its_end_takes_its_epoch_from_the_snapshot() -> None:
    state = LogState()
    state.reset_to_snapshot(OffsetAndEpoch(40, 6))
    assert state.end == OffsetAndEpoch(40, 6)
    state.append(40, 41, 7)
    assert state.end == OffsetAndEpoch(42, 7)
    assert state.validate(OffsetAndEpoch(40, 6)) is None


def test_starting_the_log_later_keeps_the_epoch_of_the_snapshot() -> None:
    state = log((1, 0), (3, 10), end=30, snapshots=((5, 1), (12, 3)))
    state.start_at_snapshot(OffsetAndEpoch(12, 3))
    assert (state.start_offset, state.epochs, state.snapshots) == (12, [(3, 12)], [OffsetAndEpoch(12, 3)])
    assert [state.epoch_at(offset) for offset in (11, 12, 13, 30, 31)] == [-1, 3, 3, 3, -1]


def test_the_later_epoch_beats_the_longer_log() -> None:
    assert OffsetAndEpoch(5, 3).is_up_to_date_with(OffsetAndEpoch(100, 2))
    assert not OffsetAndEpoch(5, 3).is_up_to_date_with(OffsetAndEpoch(6, 3))
