"""The leaders of topics' partitions, by the newest metadata that any broker has sent: each refresh asks another broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.errors import NO_SUCH_TOPIC, check
from ottla.client.partitions import LeaderTable, TopicPartition, by_topic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

#: The replica id of a client.
CONSUMER = -1


class Leaders(LeaderTable):
    """Where to send the requests about partitions of `topics`."""

    def __init__(self, cluster: ClusterClient, topics: Iterable[str], *, all_exist: bool = True) -> None:
        """Know nothing yet. Without `all_exist` topics may come and go: one that is missing has no leader, and the others go on."""
        super().__init__()
        self.topics = list(dict.fromkeys(topics))
        self._cluster = cluster
        self._all_exist = all_exist
        self._turn = 0

    async def start(self, *, create: bool = False) -> None:
        """Look all topics up.

        Raises:
            ClusterError: a topic does not exist, or the user may not describe it.
        """
        for name in self.topics:
            self.take(await self._cluster.topic(name, create=create))

    @property
    def known(self) -> bool:
        """Return whether all topics have been looked up that must exist."""
        return not self._all_exist or all(self.current_id(topic) is not None for topic in self.topics)

    async def refresh(self, avoid: int | None = None) -> None:
        """Ask the next broker for the leaders; `avoid` has just failed, and may be the one that knows of no newer leader.

        Raises:
            NoConnection: no broker can be reached.
            ClusterError: a topic is gone, or may not be described any more.
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
            self.take(topic)


class EpochEnd(NamedTuple):
    """The end of an epoch in a leader's log: the largest epoch up to the one that was asked for, -1 if there is none so old."""

    error_code: int
    epoch: int
    end_offset: int


async def epoch_ends(
    cluster: ClusterClient, leaders: Leaders, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Ask the leaders where these epochs end in their logs: what was read behind that end is lost (KIP-320).

    They are asked with the leader epochs that are known here, so that a broker which does not lead any more, or not yet, answers with an
    error. Partitions without a leader are left out, as are those of a leader that does not answer, which is forgotten.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    for node, places in leaders.by_node(epochs).items():
        rows = [
            OffsetForLeaderTopic(
                name,
                [
                    OffsetForLeaderPartition(index, leaders.of((name, index)).epoch, epochs[name, index])
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(places).items()
        ]
        try:
            response: OffsetForLeaderEpochResponse = await cluster.request(
                OffsetForLeaderEpochRequest(CONSUMER, rows), node
            )
        except NoConnection:
            leaders.forget(node)
            continue
        for topic in response.topics:
            for row in topic.partitions:
                found[topic.topic, row.partition] = EpochEnd(row.error_code, row.leader_epoch, row.end_offset)
    return found
