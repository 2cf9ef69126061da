"""Outcome of a decision: the records to append, and the response once they are committed."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord

Response = TypeVar("Response")

# Kafka's limit of records of one request: a batch of metadata records must fit into the memory of every node.
USER_RECORDS_MAX = 10_000


class Outcome(NamedTuple, Generic[Response]):
    records: list[MetadataRecord]
    response: Response


def own_words(error: KafkaError) -> str | None:
    """Returns the error's custom message, or None if it has only the code's default message, as in Kafka."""
    return None if error.message == error.code.message else error.message


def check_records_max(count: int) -> None:
    """Rejects an operation with more records than one batch may have."""
    if count > USER_RECORDS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: {count} records are more than {USER_RECORDS_MAX}.",
        )
