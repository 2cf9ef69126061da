"""A request about many topics, each decided by itself: as many of them in one turn of the event loop as it has time for.

A topic is one atomic change in one turn, with all of its partitions: one of 10,000 takes some 90 ms. The topics of one turn are
decided on an image that shows what the turns before have made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from ottla.controller.decisions.outcome import Outcome, check_records_max
from ottla.protocol.errors import KafkaError
from ottla.protocol.internal_topics.metadata_records import MetadataRecord

Topic = TypeVar("Topic")
Result = TypeVar("Result")

#: The budget of one turn in partitions, of about 9 us each to decide, replay and encode. The turn ends with the topic that uses it up.
PARTITIONS_PER_TURN = 1_000
#: The cost of a topic besides its partitions: its configs are checked, and listed in the response.
TOPIC_COST = 12


@dataclass(slots=True)
class Progress(Generic[Result]):
    """The decisions of the turns so far: the results of the first topics, and the number of their records."""

    results: list[Result] = field(default_factory=list)
    records: int = 0


def one_by_one(
    topics: Sequence[Topic],
    progress: Progress[Result],
    decide: Callable[[Topic], tuple[list[MetadataRecord], Result]],
    rejected: Callable[[Topic, KafkaError], Result],
    partitions: Callable[[Topic], int],
    *,
    validate_only: bool,
    charge: Callable[[int], None],
) -> Outcome[list[Result] | None]:
    """An invalid topic does not hinder the others. Returns None if topics are left for the next turn.

    `partitions`: how many the topic asks for, which counts for a rejected one, too. `charge` raises KafkaError where these are
    more than the client's quota allows; what fails otherwise is not charged.
    """
    records: list[MetadataRecord] = []
    spent = 0
    while len(progress.results) < len(topics):
        if spent >= PARTITIONS_PER_TURN:
            return Outcome([] if validate_only else records, None)
        topic = topics[len(progress.results)]
        try:
            new, result = decide(topic)
            check_records_max(progress.records + len(new))
            charge(partitions(topic))
        except KafkaError as error:
            result = rejected(topic, error)
        else:
            records += new
            progress.records += len(new)
        progress.results.append(result)
        spent += TOPIC_COST + max(0, partitions(topic))
    return Outcome([] if validate_only else records, progress.results)
