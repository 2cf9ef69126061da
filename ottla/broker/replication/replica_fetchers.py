"""The fetchers of the followed partitions: one `LeaderFetcher` per leader broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ottla.broker.replication.fetch_requests import FetcherSettings
from ottla.broker.replication.fetcher import LeaderFetcher
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.remote_start import RemoteStates
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.server.world import World


class ReplicaFetchers:
    """The fetchers of a node, one per leader: made for the first partition that follows it, closed after the last."""

    def __init__(
        self,
        world: World,
        settings: FetcherSettings,
        locate: Callable[[int], RegisteredEndpoint | None],
        broker_epoch: Callable[[], int],
    ) -> None:
        #: The leaders that are fetched from: lost connections are noticed of these only.
        self.by_leader: dict[int, LeaderFetcher] = {}
        self._world = world
        self._settings = settings
        self._locate = locate
        self._broker_epoch = broker_epoch
        self._leader_of: dict[Partition, int] = {}
        self._closed = False

    def take_states_from(self, remote_states: RemoteStates) -> None:
        """Remote storage is on: a follower with a large lag begins at the state that remote storage has. Called before the
        first role.
        """
        self._settings = replace(self._settings, remote_states=remote_states)

    def follow(self, partition: Partition) -> None:
        """Fetch from the partition's leader in its present epoch; without a leader nothing is fetched."""
        leader_id = partition.leader_id
        if self._leader_of.get(partition, leader_id) != leader_id:
            self.unfollow(partition)
        if leader_id < 0 or self._closed:
            return
        self._leader_of[partition] = leader_id
        fetcher = self.by_leader.get(leader_id)
        if fetcher is None:
            fetcher = self.by_leader[leader_id] = LeaderFetcher(
                self._world, self._settings, leader_id, lambda: self._locate(leader_id), self._broker_epoch
            )
        fetcher.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        leader_id = self._leader_of.pop(partition, None)
        if leader_id is None:
            return
        fetcher = self.by_leader[leader_id]
        fetcher.unfollow(partition)
        if not fetcher.session.followed:
            fetcher.close()
            del self.by_leader[leader_id]

    def has_just_lost(self, leader_id: int) -> bool:
        """Return True if a leader that is followed here closed its connection a moment ago."""
        fetcher = self.by_leader.get(leader_id)
        return fetcher is not None and fetcher.link.was_lost_lately

    def close(self) -> None:
        self._closed = True
        for fetcher in self.by_leader.values():
            fetcher.close()
        self.by_leader.clear()
        self._leader_of.clear()
