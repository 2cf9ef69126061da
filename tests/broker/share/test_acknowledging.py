"""Acknowledgement batches of a request, before a share partition sees them."""

from __future__ import annotations

import pytest

from ottla.broker.share.in_flight import AcknowledgeType
from ottla.broker.share.leaders import valid
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_structs import AcknowledgementBatch

RENEW, REJECT = AcknowledgeType.RENEW, AcknowledgeType.REJECT


@pytest.mark.parametrize(
    "batches",
    [
        [(1, 0, [1])],
        [(5, 9, [1]), (0, 4, [1])],
        [(0, 9, [1]), (8, 12, [1])],
        [(0, 4, [])],
        [(0, 4, [1, 1])],
        [(0, 4, [-1])],
        [(0, 4, [5])],
        [(0, 4, [4])],
    ],
)
def test_batches_that_make_no_sense_are_invalid(batches: list[tuple[int, int, list[int]]]) -> None:
    with pytest.raises(KafkaError) as caught:
        valid([AcknowledgementBatch(*batch) for batch in batches], RENEW, is_renew=False)
    assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_renewing_needs_a_version_and_a_request_that_knows_it() -> None:
    renewal = [AcknowledgementBatch(0, 4, [4])]
    assert valid(renewal, RENEW, is_renew=True) == [(0, 4, [4])]
    with pytest.raises(KafkaError):
        valid(renewal, REJECT, is_renew=True)


def test_valid_batches_go_on_as_they_are() -> None:
    batches = [AcknowledgementBatch(0, 4, [1]), AcknowledgementBatch(5, 6, [2, 0]), AcknowledgementBatch(6, 6, [3])]
    assert valid(batches, REJECT, is_renew=False) == [(0, 4, [1]), (5, 6, [2, 0]), (6, 6, [3])]
