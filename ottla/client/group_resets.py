"""Where a reset of a group's offsets leads: the same for `ottla group reset` and for the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.leaders import TopicPartition


async def reset_targets(
    cluster: ClusterClient, places: Sequence[TopicPartition], to: str, committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset to set for each place, kept within what the partition holds.

    `to` is earliest, latest, an offset, +N or -N from the committed one, or a time.

    Raises:
        CommandFailed: it is none of these, or a partition does not exist.
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
