"""The leaders of topics' partitions, by the newest metadata that any broker has sent.

A broker that is cut off from the quorum goes on naming itself as the leader. Therefore each refresh asks another broker, and a
leader epoch never goes back: what a stale broker says does not replace what a newer one has said.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_error import NO_SUCH_TOPIC, check
from ottla.protocol.messages.metadata import MetadataResponseTopic

#: Topic and partition.
TopicPartition = tuple[str, int]
NO_LEADER = -1


class LeaderOf(NamedTuple):
    node: int
    epoch: int


UNKNOWN = LeaderOf(NO_LEADER, -1)


class Leaders:
    """Where to send the requests about partitions of `topics`."""

    def __init__(self, cluster: ClusterClient, topics: Iterable[str], *, all_exist: bool = True) -> None:
        """Know nothing yet. Without `all_exist` topics may come and go: one that is missing has no leader, and the others go on."""
        self.topics = list(dict.fromkeys(topics))
        self._cluster = cluster
        self._all_exist = all_exist
        self._found: dict[TopicPartition, LeaderOf] = {}
        self._topic_ids: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        #: Ids of topics that were deleted and created again. A broker that lags may still name one.
        self._replaced: set[bytes] = set()
        self._turn = 0

    async def start(self, *, create: bool = False) -> None:
        """Look all topics up.

        Raises:
            CommandFailed: a topic does not exist, or the user may not describe it.
        """
        for name in self.topics:
            self._take(await self._cluster.topic(name, create=create))

    @property
    def known(self) -> bool:
        """Return whether all topics have been looked up that must exist."""
        return not self._all_exist or all(topic in self._topic_ids for topic in self.topics)

    def partitions(self, topic: str) -> list[int]:
        """Return the partitions of a topic, which may be without a leader."""
        return sorted(index for name, index in self._found if name == topic)

    def of(self, place: TopicPartition) -> LeaderOf:
        """Return the leader, UNKNOWN if there is none at the moment."""
        return self._found.get(place, UNKNOWN)

    def topic_id(self, topic: str) -> bytes:
        return self._topic_ids[topic]

    def current_id(self, topic: str) -> bytes | None:
        """Return the topic's id, None as long as no broker has named it."""
        return self._topic_ids.get(topic)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the topic that has the id or had it, None for one that was never named here."""
        return self._names.get(topic_id)

    def by_node(self, places: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the places that each leader has; those without a leader are left out."""
        found: dict[int, list[TopicPartition]] = {}
        for place in places:
            if (node := self.of(place).node) != NO_LEADER:
                found.setdefault(node, []).append(place)
        return found

    async def refresh(self, avoid: int | None = None) -> None:
        """Ask the next broker for the leaders; `avoid` has just failed, and may be the one that knows of no newer leader.

        Raises:
            NoConnection: no broker can be reached.
            CommandFailed: a topic is gone, or may not be described any more.
        """
        nodes = [node for node in sorted(self._cluster.brokers) if node != avoid]
        self._turn += 1
        try:
            node = nodes[self._turn % len(nodes)] if nodes else None
            response = await self._cluster.metadata(self.topics, node)
        except NoConnection:
            response = await self._cluster.metadata(self.topics)
        for topic in response.topics:
            # A broker that has just started may not have the topic in its metadata yet.
            if topic.error_code in NO_SUCH_TOPIC or (topic.error_code and not self._all_exist):
                continue
            check(f"topic {topic.name}", topic.error_code)
            self._take(topic)

    def forget(self, node: int) -> None:
        """The node did not answer: none of its partitions has a leader until the metadata names one of a newer epoch, or it again."""
        self._found.update(
            (place, LeaderOf(NO_LEADER, found.epoch)) for place, found in self._found.items() if found.node == node
        )

    def forget_topic(self, name: str) -> None:
        """A leader does not know the topic's id: none of its partitions has a leader until a broker names the id again, or another one."""
        self._found.update(
            (place, LeaderOf(NO_LEADER, row.epoch)) for place, row in self._found.items() if place[0] == name
        )

    def _take(self, topic: MetadataResponseTopic) -> None:
        name = topic.name or ""
        if topic.topic_id in self._replaced:
            return
        last = self._topic_ids.get(name, topic.topic_id)
        if last != topic.topic_id:  # it was deleted and created again
            self._replaced.add(last)
            self._found = {place: found for place, found in self._found.items() if place[0] != name}
        self._topic_ids[name] = topic.topic_id
        self._names[topic.topic_id] = name
        for part in topic.partitions:
            place = (name, part.partition_index)
            if part.leader_epoch >= self.of(place).epoch:
                self._found[place] = LeaderOf(part.leader_id, part.leader_epoch)
