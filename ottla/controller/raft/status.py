"""The status of a replica of the metadata log for the rest of the node: leader, epoch, committed offset and
snapshots. Nothing here steps the core."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.raft.core import RaftCore
from ottla.controller.raft.describe import describe_quorum
from ottla.controller.raft.effects import LeaderAndEpoch
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.metadata_log import MetadataLog
from ottla.controller.raft.roles import Follower
from ottla.controller.raft.snapshots import SnapshotReader, SnapshotWriter
from ottla.controller.raft.voters import QuorumEndpoint
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse

if TYPE_CHECKING:
    from ottla.server.world import World


class RaftStatus:
    """The status of a replica, without its verbs. `RaftNode` (driver.py) inherits it, and is the only one that steps the core."""

    _core: RaftCore
    _log: MetadataLog
    _world: World

    @property
    def is_leader(self) -> bool:
        return self._core.is_leader

    @property
    def leader_id(self) -> int:
        return self._core.leader_id

    @property
    def is_in_touch(self) -> bool:
        """Returns True if the quorum is reachable: this replica leads, or has a recent response of the leader."""
        role = self._core.role
        return self.is_leader or (isinstance(role, Follower) and self._world.clock.mono_ms() < role.fetch_deadline_ms)

    @property
    def epoch(self) -> int:
        return self._core.epoch

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self._core.leader_id, self._core.epoch)

    @property
    def leader_endpoint(self) -> QuorumEndpoint | None:
        """The endpoint for requests that only the leader serves."""
        endpoints = self._core.leader_endpoints
        return self._core.quorum_endpoint(endpoints) if endpoints else None

    @property
    def high_watermark(self) -> int:
        """The offset below which everything is committed; -1 if unknown."""
        return self._core.high_watermark

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(self._core.voters.last.ids)

    @property
    def kraft_version(self) -> int:
        return self._core.voters.kraft_version

    @property
    def log_end_offset(self) -> int:
        return self._core.log.end_offset

    @property
    def log_start_offset(self) -> int:
        return self._core.log.start_offset

    @property
    def core(self) -> RaftCore:
        """The core, for tests and descriptions: stepping it from outside would break the order of effects."""
        return self._core

    def describe_quorum(self, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
        clock = self._world.clock
        return describe_quorum(self._core, request, version, clock.mono_ms(), clock.wall_ms())

    def create_snapshot(self, snapshot: OffsetAndEpoch, last_contained_log_timestamp: int) -> SnapshotWriter | None:
        """Begins a snapshot of the state at a committed offset, the end of a batch; returns None if it exists already.

        Append the records, call `freeze()` (it fsyncs: on a worker if the snapshot is large), then call `snapshot_created`.
        """
        core = self._core
        if not 0 < snapshot.offset <= core.high_watermark or core.log.epoch_at(snapshot.offset) != snapshot.epoch:
            raise ValueError(f"no snapshot at {snapshot}: the log is {core.log.start_offset} to {core.high_watermark}")
        latest = core.log.latest_snapshot
        if latest is not None and latest >= snapshot:
            return None
        return SnapshotWriter(
            self._world.files,
            self._log.snapshots.path(snapshot),
            snapshot,
            last_contained_log_timestamp=last_contained_log_timestamp,
            kraft_version=core.voters.kraft_version_at(snapshot.offset),
            voters=core.voters.at(snapshot.offset),
            now_ms=self._world.clock.wall_ms(),
        )

    def latest_snapshot(self) -> SnapshotReader | None:
        latest = self._core.log.latest_snapshot
        return self._log.snapshots.reader(latest) if latest is not None else None
