"""ListTransactions by a pattern, over the wire: no pattern of an administrator stops the node for others."""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.conftest import Node, eventually

LONG = "a" * 200


def create(node: Node, transactional_id: str) -> None:
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    with node.wire() as wire:
        wire.request(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]))  # creates the topic
        eventually(lambda: wire.request(request, 5).error_code == 0, f"the coordinator of {transactional_id[:20]}")


def listed(node: Node, pattern: str) -> tuple[ErrorCode, set[str]]:
    with node.wire() as wire:
        answer = wire.request(ListTransactionsRequest(transactional_id_pattern=pattern))
    return ErrorCode(answer.error_code), {state.transactional_id for state in answer.transaction_states}


@pytest.mark.timeout(60)
def test_a_pattern_made_to_take_for_ever_is_answered_at_once(node: Node) -> None:
    create(node, LONG)
    create(node, "orders-1")
    assert listed(node, "(a+)+b") == (ErrorCode.NONE, set())
    assert listed(node, "(a|aa|a.*)+") == (ErrorCode.NONE, {LONG})
    assert listed(node, r"orders-\d") == (ErrorCode.NONE, {"orders-1"})
    assert listed(node, "orders") == (ErrorCode.NONE, set()), "the whole id has to match"


@pytest.mark.parametrize(
    "pattern",
    ["(", "(?=a)", r"(a)\1", "((a{500}){500}){500}", "[z-a]", r"\pL{200}", r"(\pL|\pN|\pS){150}x", r"(\pL{30}){30}"],
)
def test_what_is_no_pattern_or_too_large_a_one_is_said_to_be_so(node: Node, pattern: str) -> None:
    create(node, LONG)
    assert listed(node, pattern) == (ErrorCode.INVALID_REGULAR_EXPRESSION, set())
