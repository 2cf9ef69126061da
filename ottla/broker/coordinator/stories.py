"""The stories of one coordinator's groups or transactional ids: the decisions about each, and their causes (`server/story.py`).

Soft decisions, such as the beginning of a rebalance, are added where they are made. Appended records are added by the context,
in one place, with the few important facts of each type of record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.server.story import Cause, Stories


class RecordAccount(NamedTuple):
    """The entry of a record of one type in a story."""

    text: str
    #: Returns the facts of a record from its key and value.
    facts: Callable[[Any, Any], tuple[object, ...]]
    #: True if successive records of this type extend one entry, because they belong to the same course of events.
    is_frequent: bool = False


class CoordinatorStories(Stories[str]):
    """The stories of a coordinator whose records have no place in stories.

    `subject` is the group or transactional id that the present decision is about, and `cause` its reason.
    """

    subject: str | None = None

    def begin(self, subject: str, cause: Cause) -> None:
        """Begin a decision about this subject. A hot path."""
        self.subject, self.cause = subject, cause

    def print_subject(self) -> None:
        """Log the story of the present decision's subject."""
        if self.subject is not None:
            self.print(self.subject)

    def subject_of(self, key: Any) -> str | None:
        """Return the subject whose story a record with this key belongs to."""
        return None

    def appended(self, records: Sequence[CoordinatorRecord]) -> None:
        """Add the records of a decision, which are in the log now."""

    def add_record(self, subject: str, facts: RecordAccount, key: Any, value: Any) -> None:
        if facts.is_frequent:
            self.grow(subject, facts.text, facts.facts(key, value))
        else:
            self.add(subject, facts.text, facts.facts(key, value))

    def rejected(self, records: Sequence[CoordinatorRecord], error: Exception) -> None:
        """Add that the log has rejected the records, so that the decision has no effect."""
        if (subject := self.subject_of(records[0][0])) is not None:
            self.grow(subject, "%d records of the decision before were not appended: %s", (len(records), error))

    def print_of(self, records: Sequence[CoordinatorRecord]) -> None:
        """Log the stories of the records, one of which could not be replayed."""
        for subject in dict.fromkeys(self.subject_of(key) for key, _ in records[:STORIES_PRINTED_MAX]):
            if subject is not None:
                self.print(subject)

    def print_of_timer(self, key: object) -> None:
        """Log the story of the subject whose timer failed: the key of the timer has the kind, then the group."""
        if isinstance(key, tuple) and len(key) > 1 and key[1] in self:
            self.print(key[1])


#: Records whose stories are logged after a failure: nearly always they belong to one group.
STORIES_PRINTED_MAX = 4
