"""The offsets that groups have committed: those of one group are read, set and deleted, and those of a whole cluster are read
with the ends of its topics.

For one group the request is repeated until a coordinator has answered. For a whole cluster each broker is asked once, and a
broker that does not answer is left out, because the next sample follows in some seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client import topics
from ottla.client.cluster import ClusterClient, ask_about_group, first_group
from ottla.client.errors import ClusterError, check
from ottla.client.groups import kind_of, share_positions
from ottla.client.partitions import TopicPartition
from ottla.client.topics import end_offsets
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_groups import ListedGroup, ListGroupsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.shared_structs import PartitionIndex

#: The last versions that name topics; later ones have ids only, and the id of a topic in a group may be gone.
OFFSET_FETCH_VERSION = 9
OFFSET_COMMIT_VERSION = 9
NO_GENERATION = -1


#: Partitions in one request: a broker answers this many in one or two turns of its event loop.
PARTITIONS_AT_ONCE = 2_000
GROUPS_AT_ONCE = 200


async def offsets_by_leader(
    cluster: ClusterClient, leaders: Mapping[int, Iterable[TopicPartition]], timestamp: int
) -> dict[TopicPartition, int]:
    """Return the end offsets from the leaders. Partitions with an error, and those of brokers that do not answer, are left out."""
    found: dict[TopicPartition, int] = {}
    for node, places in sorted(leaders.items()):
        listed = sorted(places)
        for first in range(0, len(listed), PARTITIONS_AT_ONCE):
            topics: dict[str, ListOffsetsTopic] = {}
            for name, index in listed[first : first + PARTITIONS_AT_ONCE]:
                topic = topics.setdefault(name, ListOffsetsTopic(name, []))
                topic.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=timestamp))
            cluster.doing = f"listing the offsets of broker {node}"
            try:
                response = await cluster.request(ListOffsetsRequest(-1, 0, list(topics.values())), node)
            except ClusterError:
                break
            found.update(
                ((topic.name, part.partition_index), part.offset)
                for topic in response.topics
                for part in topic.partitions
                if not part.error_code
            )
    return found


async def groups_by_broker(cluster: ClusterClient, nodes: Iterable[int]) -> dict[int, list[ListedGroup]]:
    """Return the groups that each broker coordinates; brokers that do not answer are left out."""
    found: dict[int, list[ListedGroup]] = {}
    for node in sorted(nodes):
        cluster.doing = f"listing the groups of broker {node}"
        try:
            response = await cluster.request(ListGroupsRequest(), node)
        except ClusterError:
            continue
        if not response.error_code:
            found[node] = response.groups
    return found


async def committed_of_groups(
    cluster: ClusterClient, node: int, groups: Sequence[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Return the committed offsets of groups that `node` coordinates; groups with an error are left out."""
    found: dict[str, dict[TopicPartition, int]] = {}
    for first in range(0, len(groups), GROUPS_AT_ONCE):
        wanted = [
            OffsetFetchRequestGroup(group_id=name, topics=None) for name in groups[first : first + GROUPS_AT_ONCE]
        ]
        cluster.doing = f"fetching the offsets of groups of broker {node}"
        try:
            response = await cluster.request(OffsetFetchRequest(groups=wanted), node, version=OFFSET_FETCH_VERSION)
        except ClusterError:
            break
        for row in response.groups:
            if not row.error_code:
                found[row.group_id] = {
                    (topic.name, part.partition_index): part.committed_offset
                    for topic in row.topics
                    for part in topic.partitions
                    if part.committed_offset >= 0 and not part.error_code
                }
    return found


SHARE = "share"


class PartitionLag(NamedTuple):
    """A partition that a group consumes: the offset that is consumed next, the end of the log, and the records between them;
    None: not known.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None


async def group_lag(cluster: ClusterClient, group: str) -> list[PartitionLag]:
    """Return the lag of each partition for which the group has an offset.

    Raises:
        ClusterError: there is no such group (the error suggests names), or no permission.
    """
    kind = await kind_of(cluster, group)
    if kind == SHARE:
        found = await share_positions(cluster, group)
        ends = await end_offsets(cluster, found)
        return [
            PartitionLag(
                *place,
                _known(row.start_offset),
                ends.get(place),
                _share_lag(row.start_offset, row.lag, ends.get(place)),
            )
            for place, row in sorted(found.items())
        ]
    committed = await committed_offsets(cluster, group)
    ends = await end_offsets(cluster, committed)
    return [_lag(place, offset, ends.get(place)) for place, offset in sorted(committed.items())]


def _lag(place: TopicPartition, offset: int, end: int | None) -> PartitionLag:
    return PartitionLag(*place, offset, end, None if end is None else max(0, end - offset))


def _share_lag(start: int, lag: int, end: int | None) -> int | None:
    """Return the lag that the coordinator has sent.

    Older brokers send none; then records that are acquired but not acknowledged count as lag too.
    """
    if lag >= 0:
        return lag
    return None if start < 0 or end is None else max(0, end - start)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset


async def reset_targets(
    cluster: ClusterClient, places: Sequence[TopicPartition], to: str, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset to set for each place, kept within what the partition holds.

    `to` is earliest, latest, an offset, +N or -N from the committed one, or a time.

    Raises:
        ClusterError: it is none of these, or a partition does not exist.
    """
    targets: dict[TopicPartition, int] = {}
    for name in sorted({name for name, _ in places}):
        indexes = [index for topic, index in places if topic == name]
        first = await topics.list_offsets(cluster, name, topics.EARLIEST, indexes)
        end = await topics.list_offsets(cluster, name, topics.LATEST, indexes)
        if to[:1] in "+-" and to[1:].isdecimal():
            found = {index: committed.get((name, index), end[index]) + int(to) for index in indexes}
        else:
            found = await topics.offsets_at(cluster, name, "--to", to, first, end)
        targets.update(((name, index), min(max(found[index], first[index]), end[index])) for index in indexes)
    return targets


class GroupPosition(NamedTuple):
    """A committed offset, and the leader epoch that was committed with it: -1 if none was."""

    offset: int
    leader_epoch: int


async def committed_offsets(cluster: ClusterClient, group: str, *, stable: bool = False) -> dict[TopicPartition, int]:
    """Return all committed offsets of the group; `stable`: wait for those of open transactions (KIP-447)."""
    return {place: position.offset for place, position in (await committed_positions(cluster, group, stable)).items()}


async def committed_positions(
    cluster: ClusterClient, group: str, stable: bool = False
) -> dict[TopicPartition, GroupPosition]:
    """Return all committed offsets of the group, with their leader epochs."""
    wanted = [OffsetFetchRequestGroup(group_id=group, topics=None)]
    request = OffsetFetchRequest(groups=wanted, require_stable=stable)
    doing = f"fetching the offsets of group {group}"
    found = await ask_about_group(cluster, group, request, doing, first_group, version=OFFSET_FETCH_VERSION)
    check(f"group {group}", found.error_code)
    rows = [(topic.name, part) for topic in found.topics for part in topic.partitions]
    return {
        (name, part.partition_index): GroupPosition(part.committed_offset, part.committed_leader_epoch)
        for name, part in rows
        if part.committed_offset >= 0
    }


async def commit_offsets(
    cluster: ClusterClient,
    group: str,
    offsets: Mapping[TopicPartition, int],
    generation: int = NO_GENERATION,
    member_id: str = "",
) -> None:
    """Set offsets, as a member of the generation or from outside the group.

    The coordinator rejects the latter while the group has members.
    """
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        row = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        topics.setdefault(name, OffsetCommitRequestTopic(name=name, partitions=[])).partitions.append(row)
    request = OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=list(topics.values())
    )
    doing = f"setting the offsets of group {group}"
    failed = await ask_about_group(cluster, group, request, doing, _first_failed, version=OFFSET_COMMIT_VERSION)
    check(f"group {group}, partition {failed.topic}-{failed.partition}", failed.error_code)


class _Committed(NamedTuple):
    topic: str
    partition: int
    error_code: int


def _first_failed(response: OffsetCommitResponse) -> _Committed:
    """Return the first partition with an error: a coordinator that has moved rejects all of them alike."""
    rows = (
        _Committed(topic.name, row.partition_index, row.error_code)
        for topic in response.topics
        for row in topic.partitions
    )
    return next((row for row in rows if row.error_code), _Committed("", -1, ErrorCode.NONE))


async def delete_offsets(
    cluster: ClusterClient, group: str, places: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Delete the offsets of partitions; return an error code per partition, 0 for those that are deleted.

    Raises:
        CommandFailed: nothing was deleted.
    """
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    for name, index in places:
        topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name, partitions=[]))
        topic.partitions.append(PartitionIndex(partition_index=index))
    request = OffsetDeleteRequest(group_id=group, topics=list(topics.values()))
    response = await ask_about_group(cluster, group, request, f"deleting offsets of group {group}")
    check(f"group {group}", response.error_code)
    return {
        (topic.name, part.partition_index): part.error_code for topic in response.topics for part in topic.partitions
    }
