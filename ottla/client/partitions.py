"""Partitions of topics and who leads them, without I/O: what a client has learnt from Metadata responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.protocol.messages.metadata import MetadataResponseTopic

#: A topic's name and a partition's number.
TopicPartition = tuple[str, int]
NO_LEADER = -1


class LeaderOf(NamedTuple):
    node: int
    epoch: int


UNKNOWN = LeaderOf(NO_LEADER, -1)


def by_topic(places: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, as most requests name them."""
    found: dict[str, list[int]] = {}
    for name, index in places:
        found.setdefault(name, []).append(index)
    return found


class LeaderTable:
    """The newest leader of each partition that any broker has named, and the ids of topics.

    A broker that is cut off from the quorum goes on naming itself as the leader. Therefore a leader epoch never goes back:
    metadata of a stale broker do not replace newer ones, and the id of a deleted topic does not replace the id of the new topic
    with its name.
    """

    def __init__(self) -> None:
        self._found: dict[TopicPartition, LeaderOf] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        #: Ids of topics that were deleted and created again. A broker that lags may still name one.
        self._replaced: set[bytes] = set()

    def take(self, topic: MetadataResponseTopic) -> None:
        """Take in a topic from a broker's metadata."""
        name = topic.name or ""
        if topic.topic_id in self._replaced:
            return
        last = self._topic_ids.get(name, topic.topic_id)
        if last != topic.topic_id:  # the topic was deleted and created again
            self._replaced.add(last)
            self._found = {place: found for place, found in self._found.items() if place[0] != name}
        self._topic_ids[name] = topic.topic_id
        self._names[topic.topic_id] = name
        for part in topic.partitions:
            place = (name, part.partition_index)
            if part.leader_epoch >= self.of(place).epoch:
                self._found[place] = LeaderOf(part.leader_id, part.leader_epoch)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic, also those without a leader."""
        return sorted(index for name, index in self._found if name == topic)

    def of(self, place: TopicPartition) -> LeaderOf:
        """Return the leader. It is UNKNOWN if there is none at the moment."""
        return self._found.get(place, UNKNOWN)

    def topic_id(self, topic: str) -> bytes:
        return self._topic_ids[topic]

    def current_id(self, topic: str) -> bytes | None:
        """Return the topic's id, None as long as no broker has named it."""
        return self._topic_ids.get(topic)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic that has or had this id, or None if no broker has named the id."""
        return self._names.get(topic_id)

    def by_node(self, places: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions of each leader. Partitions without a leader are left out."""
        found: dict[int, list[TopicPartition]] = {}
        for place in places:
            if (node := self.of(place).node) != NO_LEADER:
                found.setdefault(node, []).append(place)
        return found

    def forget(self, node: int) -> None:
        """Forget a node that did not answer.

        Its partitions have no leader until the metadata name one of a newer epoch, or this one again.
        """
        self._found.update(
            (place, LeaderOf(NO_LEADER, found.epoch)) for place, found in self._found.items() if found.node == node
        )

    def forget_topic(self, name: str) -> None:
        """Forget the id of a topic that a leader does not know.

        The partitions have no leader until a broker names this id again, or another one.
        """
        self._found.update(
            (place, LeaderOf(NO_LEADER, row.epoch)) for place, row in self._found.items() if place[0] == name
        )
