"""Which share partitions of a group have state at share coordinators, or get or lose it just now: the record of it, as a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ottla.broker.groups.modern.assignment import Assignment, assignment_of, without_empty
from ottla.protocol.internal_topics.share_group_records import ShareGroupStatePartitionMetadataValue


@dataclass(frozen=True, slots=True)
class StatePartitions:
    """Its verbs return the state that follows."""

    initializing: Assignment = field(default_factory=dict)
    initialized: Assignment = field(default_factory=dict)
    #: Topics whose states are being deleted.
    deleting: frozenset[bytes] = frozenset()
    names: Mapping[bytes, str] = field(default_factory=dict)

    def begun(self, partitions: Assignment, names: Mapping[bytes, str]) -> StatePartitions:
        """These are initialized from now on, or again."""
        return StatePartitions(
            _union(self.initializing, partitions),
            _without(self.initialized, partitions),
            self.deleting - partitions.keys(),
            {**self.names, **names},
        )

    def ended(self, initialized: Assignment, failed: Assignment, done: Assignment) -> StatePartitions:
        """The persister has initialized some, of which those that are `done` count, and has failed for others."""
        return replace(
            self,
            initializing=_without(_without(self.initializing, initialized), failed),
            initialized=_union(self.initialized, done),
        )

    def deletion_begun(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """The persister is asked to delete the states of these topics from now on."""
        gone = frozenset(topic_ids)
        following = self.without_topics(gone)
        return replace(following, deleting=following.deleting | gone, names=self.names)

    def without_topics(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        gone = frozenset(topic_ids)
        return StatePartitions(
            {topic_id: partitions for topic_id, partitions in self.initializing.items() if topic_id not in gone},
            {topic_id: partitions for topic_id, partitions in self.initialized.items() if topic_id not in gone},
            self.deleting - gone,
            {topic_id: name for topic_id, name in self.names.items() if topic_id not in gone},
        )


def recorded_state_partitions(value: ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    names = {topic.topic_id: topic.topic_name for topic in value.deleting_topics}
    names |= {topic.topic_id: topic.topic_name for topic in (*value.initializing_topics, *value.initialized_topics)}
    return StatePartitions(
        assignment_of(value.initializing_topics),
        assignment_of(value.initialized_topics),
        frozenset(topic.topic_id for topic in value.deleting_topics),
        names,
    )


def _union(first: Assignment, second: Assignment) -> Assignment:
    return {
        topic_id: first.get(topic_id, frozenset()) | second.get(topic_id, frozenset())
        for topic_id in first.keys() | second.keys()
    }


def _without(first: Assignment, second: Mapping[bytes, frozenset[int]]) -> Assignment:
    return without_empty({topic_id: p - second.get(topic_id, frozenset()) for topic_id, p in first.items()})
