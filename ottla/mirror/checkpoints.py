"""Offsets of the source's groups as offsets of the target: they are written to `SOURCE.checkpoints.internal`, and on request to
the target's groups.

It follows MirrorMaker's MirrorCheckpointTask: a checkpoint never goes back in the target while the group goes on in the source,
and a group of the target is changed only while it has no members, and never back. Two rules differ from MirrorMaker's, because
MirrorMaker does not notice that a topic was deleted and created again. The first rule: the checkpoints of such a topic may be lower
than before. The second rule: a checkpoint of a deleted topic, or one beyond the end of the log, is never set, and a group whose offset
lies beyond the end of the log is set back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.group_offsets import commit_offsets, committed_of_groups, committed_offsets, groups_by_broker
from ottla.client.groups import describe_group
from ottla.client.partitions import TopicPartition
from ottla.client.topics import end_offsets
from ottla.mirror.catalogue import NAMED_MAX, Catalogue, Say
from ottla.mirror.emitting import Emitter
from ottla.mirror.formats import Checkpoint, TopicIds, read_checkpoint
from ottla.mirror.names import Selection
from ottla.mirror.positions import TopicReader
from ottla.mirror.syncs import SyncStore
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.record import Record

#: The protocol types of groups that commit offsets of partitions; share groups do not.
PROTOCOL_TYPES = ("consumer", "")
EMPTY_STATES = ("Empty", "Dead")
#: The group no longer exists, or has got members meanwhile.
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

    def _take(self, record: Record) -> None:
        if (row := read_checkpoint(record)) is not None:
            self.known.setdefault(row.group, {})[row.place] = row


class Checkpoints:
    """The translation of offsets: the worker of the first lane runs one `round` after the other."""

    def __init__(
        self,
        source: ClusterClient,
        target: ClusterClient,
        syncs: TopicReader,
        store: SyncStore,
        log: CheckpointLog,
        emitter: Emitter,
        catalogue: Catalogue,
        groups: Selection,
        say: Say,
    ) -> None:
        #: The number of checkpoints that began again, because their topic was deleted and created again in one of the clusters.
        self.restarted = 0
        self._source, self._target = source, target
        self._syncs, self._store = syncs, store
        self._log, self._emitter = log, emitter
        self._catalogue, self._groups = catalogue, groups
        self._say = say

    async def round(self) -> int:
        """Translate the present offsets of the groups, and write the new checkpoints. Return their number.

        Raises:
            Failure: a cluster does not answer, or rejects the write.
        """
        known = await self._log.read()
        seen = self._catalogue.seen_ids
        await self._syncs.read()
        committed = await self._committed()
        now = await self._catalogue.ids_now({name for row in committed.values() for name, _ in row if name in seen})
        # If a topic has the same id before and after, it was not created again while its offsets were read.
        same = {name: ids for name, ids in now.items() if ids == seen[name]}
        new, again = [], []
        for group, offsets in committed.items():
            for row in self._translated(group, offsets, same):
                last = known.get(group, {}).get(row.place)
                if is_news(row, last):
                    new.append(row)
                    again += [last] if last is not None and is_of_others(last, row.ids) else []
        await self._emitter.write(row.record for row in new)
        self._report(again, {row.place[0]: row.ids for row in new})
        return len(new)

    def _report(self, again: Iterable[Checkpoint], ids: Mapping[str, TopicIds | None]) -> None:
        """Log each topic whose checkpoints begin again, and count these checkpoints."""
        counts: dict[tuple[str, str], int] = {}
        for last in again:
            name, now = last.place[0], ids[last.place[0]]
            where = "source" if last.ids is None or now is None or last.ids.source != now.source else "target"
            counts[name, where] = counts.get((name, where), 0) + 1
        for (name, where), count in sorted(counts.items()):
            self._say(f"{count} checkpoints of {name} begin again: it was deleted and created again in the {where}")
            self.restarted += count

    async def apply(self) -> None:
        """Set the offsets of the target's groups without members to those of their checkpoints.

        Raises:
            Failure: the target does not answer, or gives no permission.
        """
        for group, rows in (await self._log.read()).items():
            if group in self._groups:
                for text in (await apply_checkpoints(self._target, group, rows)).texts:
                    self._say(text)

    def _translated(
        self, group: str, offsets: Mapping[TopicPartition, int], ids: Mapping[str, TopicIds]
    ) -> list[Checkpoint]:
        found = []
        for (name, index), upstream in offsets.items():
            if name not in ids:
                continue
            downstream = self._store.translate((name, index), upstream, ids[name])
            if downstream is not None:
                place = self._catalogue.policy.remote(name), index
                found.append(Checkpoint(group, place, upstream, downstream, ids=ids[name]))
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
    """Return whether a checkpoint has to be written after the last one: the group went back in the source or forward in the
    target, or the last one belongs to a topic that was created again.
    """
    if last is None or is_of_others(last, row.ids):
        return True
    return row.upstream < last.upstream or row.downstream > last.downstream


def is_of_others(row: Checkpoint, ids: TopicIds | None) -> bool:
    """Return whether a checkpoint is known to belong to other topics with these names."""
    return row.ids is not None and row.ids != ids


class Applied(NamedTuple):
    """The offsets that `apply_checkpoints` has set, and notes for the user about unusual ones."""

    offsets: dict[TopicPartition, int]
    texts: list[str]


async def apply_checkpoints(cluster: ClusterClient, group: str, rows: Mapping[TopicPartition, Checkpoint]) -> Applied:
    """Set the offsets of a group without members, never back within a log.

    An offset behind the end of a log belongs to a deleted topic, or to records that the log has lost. A consumer that began
    there would go to one of the ends of the log, so the offset is set back to the checkpoint.

    Raises:
        Failure: the cluster does not answer, or gives no permission.
    """
    try:
        if (await describe_group(cluster, group)).state not in EMPTY_STATES:
            return Applied({}, [])
        committed = await committed_offsets(cluster, group)
    except Failure as fault:
        if fault.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        committed = {}
    other = {place: row for place, row in rows.items() if committed.get(place, -1) != row.downstream}
    if not other:
        return Applied({}, [])
    ids = {topic.name: topic.topic_id for topic in (await cluster.metadata(sorted({name for name, _ in other}))).topics}
    ends = await end_offsets(cluster, other)
    wanted, stale, texts = {}, [], []
    for place, row in sorted(other.items()):
        at, end, where = committed.get(place, -1), ends.get(place, -1), f"{place[0]}-{place[1]}"
        if row.downstream > end or (row.ids is not None and row.ids.target != ids.get(place[0])):
            stale.append(where)
        elif at < row.downstream:
            wanted[place] = row.downstream
        elif at > end:
            wanted[place] = row.downstream
            texts.append(f"group {group} is set back from {at} to {row.downstream} in {where}, which ends at {end}")
    if stale:
        names = ", ".join(stale[:NAMED_MAX]) + (" ..." if len(stale) > NAMED_MAX else "")
        texts.append(f"group {group} is not set in {names}: checkpoints of topics that were deleted, or were cut")
    if wanted:
        try:
            await commit_offsets(cluster, group, wanted)
        except Failure as fault:
            if fault.code not in NOT_NOW:
                raise
            return Applied({}, [])
    return Applied(wanted, texts)
