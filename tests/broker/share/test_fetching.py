"""Errors of a ShareFetch, which members of a share group must know."""

from __future__ import annotations

import pytest

from ottla.broker.share.fetching import for_member
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.errors import StorageFailure


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE), ErrorCode.KAFKA_STORAGE_ERROR),
        (StorageFailure("/data", OSError()), ErrorCode.KAFKA_STORAGE_ERROR),
        (KafkaError(ErrorCode.CORRUPT_MESSAGE), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_what_cannot_be_read_is_an_error_that_members_know(error: KafkaError | StorageFailure, code: ErrorCode) -> None:
    assert for_member(error).code == code
