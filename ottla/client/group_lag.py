"""The lag of a group: of each partition the records that are not consumed yet. Groups of all four kinds have one."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.groups import committed_offsets, kind_of
from ottla.client.leaders import TopicPartition
from ottla.client.share_groups import share_positions
from ottla.client.topics import end_offsets

SHARE = "share"


class PartitionLag(NamedTuple):
    """A partition of a group: the offset that is consumed next, the end of the log, and the records between them; None: not known."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None


async def group_lag(cluster: ClusterClient, group: str) -> list[PartitionLag]:
    """Return the lag of each partition for which the group has an offset.

    Raises:
        CommandFailed: there is no such group, which suggests names, or no permission.
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
    """Return the lag that the coordinator says; an older broker says none, and records in flight then count as not consumed."""
    if lag >= 0:
        return lag
    return None if start < 0 or end is None else max(0, end - start)


def _known(offset: int) -> int | None:
    return None if offset < 0 else offset
