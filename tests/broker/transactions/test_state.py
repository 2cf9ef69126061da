"""The tables of the machine: complete, and with no way from one outcome to the other."""

from __future__ import annotations

from ottla.broker.transactions.transaction import (
    BY_NAME,
    COMPLETION,
    END_TXN_V1,
    END_TXN_V2,
    IDLE,
    PREPARED,
    TRANSITIONS,
    End,
    TransactionState,
)
from ottla.protocol.errors import ErrorCode

WRITTEN = set(TransactionState) - {TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE}


def reachable(start: TransactionState) -> set[TransactionState]:
    """Return the states that can follow without a new transaction, a new producer or the end of this one."""
    found, left = set(), [start]
    while left:
        state = left.pop()
        if state not in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            left += TRANSITIONS[state].keys() - found
            found |= TRANSITIONS[state].keys()
    return found


def test_every_state_that_is_written_can_be_entered() -> None:
    assert set(TRANSITIONS) == set().union(*TRANSITIONS.values()) == WRITTEN
    assert set(BY_NAME.values()) == set(TransactionState)


def test_a_prepared_outcome_has_one_way_out() -> None:
    assert reachable(TransactionState.PREPARE_COMMIT) == {TransactionState.COMPLETE_COMMIT}
    assert reachable(TransactionState.PREPARE_ABORT) == {TransactionState.COMPLETE_ABORT}
    assert set(COMPLETION) == PREPARED


def test_every_end_of_a_version_1_client_has_an_answer() -> None:
    assert set(END_TXN_V1) == {(state, commit) for state in WRITTEN for commit in (True, False)}


def test_every_end_of_a_version_2_client_has_an_answer_where_its_epoch_is_unambiguous() -> None:
    for state in WRITTEN:
        for commit in (True, False):
            # a state in which no epoch was raised has no retry
            assert (state, commit, False) in END_TXN_V2
            assert ((state, commit, True) in END_TXN_V2) == (state in PREPARED | IDLE - {TransactionState.EMPTY})


def test_what_may_be_prepared_is_what_the_machine_allows() -> None:
    for (state, commit, *_), outcome in [*END_TXN_V1.items(), *END_TXN_V2.items()]:
        if outcome is End.PREPARE:
            assert (TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT) in TRANSITIONS[state]


def test_no_end_is_confirmed_that_was_decided_otherwise() -> None:
    for (state, commit, *_), outcome in [*END_TXN_V1.items(), *END_TXN_V2.items()]:
        if outcome is End.DONE:
            assert state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)


def test_a_commit_that_lost_against_the_coordinators_abort_is_something_clients_recover_from() -> None:
    assert END_TXN_V2[TransactionState.COMPLETE_ABORT, True, True] == ErrorCode.PRODUCER_FENCED
