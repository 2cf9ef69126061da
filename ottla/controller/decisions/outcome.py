"""Outcome of a decision: the records to append, and the response once they are committed."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord

Response = TypeVar("Response")
State = TypeVar("State")

# Kafka's limit of records of one request: a batch of metadata records must fit into the memory of every node.
USER_RECORDS_MAX = 10_000


class Outcome(NamedTuple, Generic[Response]):
    records: list[MetadataRecord]
    response: Response


#: A decision about more partitions than one turn of the event loop has time for. It yields the records of each turn but the last,
#: which are replayed before it is resumed, and other decisions come in between.
Decision: TypeAlias = Generator[list[MetadataRecord], None, Outcome[Response]]


def in_turns(begin: Callable[[State], Decision[Response]]) -> Callable[[State], Outcome[Response | None]]:
    """Return the decision in the form that `Controller.write_in_turns` takes: each call is a turn, and its response is None
    except for the last.
    """
    running: Decision[Response] | None = None

    def decide(state: State) -> Outcome[Response | None]:
        nonlocal running
        if running is None:
            running = begin(state)
        try:
            return Outcome(next(running), None)
        except StopIteration as end:
            last: Outcome[Response | None] = end.value
            return last

    return decide


def check_records_max(count: int) -> None:
    """Reject an operation with more records than one batch may have."""
    if count > USER_RECORDS_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"Unable to perform excessively large batch operation: {count} records are more than {USER_RECORDS_MAX}.",
        )
