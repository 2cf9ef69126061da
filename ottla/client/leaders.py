"""The leaders of topics' partitions, by the newest metadata that any broker has sent: each refresh asks another broker."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.errors import NO_SUCH_TOPIC, check
from ottla.client.partitions import LeaderTable


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
