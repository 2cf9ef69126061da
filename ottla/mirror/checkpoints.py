"""Offsets of the source's groups as offsets of the target: `SOURCE.checkpoints.internal`, and the target's groups themselves if wanted.

As MirrorMaker's MirrorCheckpointTask does it: a checkpoint never goes back in the target while the group goes on in the source, and a
group of the target is changed only while it has no members, and never back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.client.cluster import ClusterClient
from ottla.client.errors import Failure
from ottla.client.group_offsets import committed_of_groups, groups_by_broker
from ottla.client.groups import commit_offsets, committed_offsets, describe_group
from ottla.client.leaders import TopicPartition
from ottla.mirror.emitting import Emitter
from ottla.mirror.formats import Checkpoint, read_checkpoint
from ottla.mirror.names import Policy, Selection
from ottla.mirror.positions import TopicReader
from ottla.mirror.syncs import SyncStore
from ottla.protocol.errors import ErrorCode

#: Kinds of groups that commit offsets of partitions; a share group has none.
PROTOCOL_TYPES = ("consumer", "")
EMPTY_STATES = ("Empty", "Dead")
#: The group is there no more, or has got members meanwhile.
NOT_NOW = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NON_EMPTY_GROUP)

#: The newest checkpoint of each partition of each group.
Known = dict[str, dict[TopicPartition, Checkpoint]]


class CheckpointLog:
    """The topic of checkpoints in the target, replayed into `known`."""

    def __init__(self, cluster: ClusterClient, topic: str) -> None:
        self.known: Known = {}
        self._reader = TopicReader(cluster, topic, self._take, self.known.clear)

    async def read(self) -> Known:
        await self._reader.read()
        return self.known

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        if (row := read_checkpoint(key, value)) is not None:
            self.known.setdefault(row.group, {})[row.place] = row


class Checkpoints:
    """One `round` after the other, by the worker of the first lane."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        syncs: TopicReader,
        store: SyncStore,
        log: CheckpointLog,
        emitter: Emitter,
        policy: Policy,
        groups: Selection,
        is_mirrored: Callable[[str], bool],
    ) -> None:
        self._source, self._target = source, target
        self._syncs, self._store = syncs, store
        self._log, self._emitter = log, emitter
        self._policy, self._groups = policy, groups
        self._is_mirrored = is_mirrored

    async def round(self) -> int:
        """Translate the offsets that the groups have now, and write what is new. Returns how many checkpoints these are.

        Raises:
            Failure: a cluster does not answer, or takes nothing.
        """
        known = await self._log.read()
        await self._syncs.read()
        new = [
            row
            for group, offsets in (await self._committed()).items()
            for row in self._translated(group, offsets)
            if is_news(row, known.get(group, {}).get(row.place))
        ]
        await self._emitter.write(row.record for row in new)
        return len(new)

    async def apply(self) -> None:
        """Set the offsets of the target's groups that have no members to those of their checkpoints.

        Raises:
            Failure: the target does not answer, or gives no permission.
        """
        for group, rows in (await self._log.read()).items():
            if group in self._groups:
                await apply_checkpoints(self._target, group, rows)

    def _translated(self, group: str, offsets: Mapping[TopicPartition, int]) -> list[Checkpoint]:
        found = []
        for (name, index), upstream in offsets.items():
            if not self._is_mirrored(name):
                continue
            downstream = self._store.translate((name, index), upstream)
            if downstream is not None:
                found.append(Checkpoint(group, (self._policy.remote(name), index), upstream, downstream))
        return found

    async def _committed(self) -> dict[str, dict[TopicPartition, int]]:
        await self._source.metadata([])
        found: dict[str, dict[TopicPartition, int]] = {}
        for node, groups in (await groups_by_broker(self._source, self._source.brokers)).items():
            names = [
                row.group_id for row in groups if row.protocol_type in PROTOCOL_TYPES and row.group_id in self._groups
            ]
            found |= await committed_of_groups(self._source, node, names)
        return found


def is_news(row: Checkpoint, last: Checkpoint | None) -> bool:
    """Return whether a checkpoint is to be written after the last one: the group went back in the source, or on in the target."""
    return last is None or row.upstream < last.upstream or row.downstream > last.downstream


async def apply_checkpoints(
    cluster: ClusterClient, group: str, rows: Mapping[TopicPartition, Checkpoint]
) -> dict[TopicPartition, int]:
    """Set the offsets of a group that has no members, never back. Returns what was set.

    Raises:
        Failure: the cluster does not answer, or gives no permission.
    """
    try:
        if (await describe_group(cluster, group)).state not in EMPTY_STATES:
            return {}
        committed = await committed_offsets(cluster, group)
    except Failure as fault:
        if fault.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        committed = {}
    wanted = {place: row.downstream for place, row in rows.items() if committed.get(place, -1) < row.downstream}
    if not wanted:
        return {}
    try:
        await commit_offsets(cluster, group, wanted)
    except Failure as fault:
        if fault.code not in NOT_NOW:
            raise
        return {}
    return wanted
