"""Transactional ids, and the groups and topics inside a transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.server.authorization.operations import (
    ALL,
    TRANSACTIONAL_ID,
)
from tests.broker.authorization.entries import (
    ALICE,
    GROUP_REFUSED,
    REFUSED,
    TOPIC_REFUSED,
    TRANSACTION_REFUSED,
    acl,
    create,
    error_codes,
)
from tests.broker.authorization.requests import (
    find_coordinator,
    offsets_in_transaction,
    partitions_in_transaction,
    produce,
)
from tests.broker.conftest import eventually
from tests.broker.records import batch
from tests.broker.wire import Wire

ON_TRANSACTIONS: dict[str, tuple[Callable[[str], Any], int]] = {
    "AddPartitionsToTxn": (lambda txn: partitions_in_transaction(txn, "open"), 3),
    "AddOffsetsToTxn": (lambda txn: AddOffsetsToTxnRequest(transactional_id=txn, group_id="g"), 3),
    "EndTxn": (lambda txn: EndTxnRequest(transactional_id=txn), 3),
    "TxnOffsetCommit": (lambda txn: offsets_in_transaction(txn, "g"), 3),
    "DescribeTransactions": (lambda txn: DescribeTransactionsRequest(transactional_ids=[txn]), 0),
}


@pytest.mark.parametrize("api", ON_TRANSACTIONS)
def test_a_transaction_of_another_principal_is_refused_and_an_open_one_is_not(api: str, wire: Wire) -> None:
    build, version = ON_TRANSACTIONS[api]
    assert error_codes(wire.request(build("secret-txn"), version)) == {TRANSACTION_REFUSED}
    assert not error_codes(wire.request(build("txn"), version)) & REFUSED


def test_groups_and_topics_inside_a_transaction_are_asked_about(wire: Wire) -> None:
    secret_group = AddOffsetsToTxnRequest(transactional_id="txn", group_id="secret-1")
    assert error_codes(wire.request(secret_group, 3)) == {GROUP_REFUSED}
    assert error_codes(wire.request(offsets_in_transaction("txn", "secret-1"), 3)) == {GROUP_REFUSED}
    assert error_codes(wire.request(offsets_in_transaction("txn", "g", "hidden"), 3)) == {TOPIC_REFUSED}


def test_one_refused_topic_keeps_all_partitions_out_of_a_transaction(wire: Wire) -> None:
    answer = wire.request(partitions_in_transaction("txn", "open", "hidden", "not-there"), 3)
    codes = {t.name: t.results_by_partition[0].partition_error_code for t in answer.results_by_topic_v3_and_below}
    assert codes == {
        "open": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "hidden": TOPIC_REFUSED,
        "not-there": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_transaction_of_another_principal_is_not_listed(wire: Wire) -> None:
    for name in ("listed-txn", "later-secret"):
        named = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        find = find_coordinator(name, 1, 4)  # makes the node create the coordinator's topic
        eventually(lambda find=find: not error_codes(wire.request(find, 4)), "the transaction's coordinator")
        eventually(lambda named=named: not error_codes(wire.request(named, 4)), "the transaction's producer id")
    create(wire, acl(TRANSACTIONAL_ID, "later-secret", ALL, principal=ALICE))
    listed = {state.transactional_id for state in wire.request(ListTransactionsRequest()).transaction_states}
    assert "listed-txn" in listed
    assert "later-secret" not in listed


@pytest.mark.parametrize("transactional_id", [None, "secret-txn"])
def test_transactional_records_need_the_transactional_id(
    wire: Wire, ids: dict[str, bytes], transactional_id: str | None
) -> None:
    request = produce("open", ids, 9)
    request.transactional_id = transactional_id
    records = batch([b"x"], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    request.topic_data[0].partition_data[0].records = records
    assert error_codes(wire.request(request, 9)) == {TRANSACTION_REFUSED}
