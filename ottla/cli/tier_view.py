"""Columns of `ottla topic describe` for a topic with remote storage: the first offset on the disk, and how far the copies are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ottla.cli.output import Row
from ottla.client import topics
from ottla.client.admin_listeners import tier_states
from ottla.client.cluster import ClusterClient
from ottla.client.troubles import tier_troubles

REMOTE_STORAGE = "remote.storage.enable"
TIER_COLUMNS = ("local_offset", "remote_offset", "remote_bytes")


class TierView(NamedTuple):
    """The fields of each partition, and the problems."""

    fields: dict[int, Row]
    troubles: list[str]


async def tier_view(
    cluster: ClusterClient, listeners: Mapping[int, str], name: str, partitions: Sequence[int]
) -> TierView:
    """Ask the leaders for both ends (KIP-405). Ask the admin listeners, if they are known, for the rest.

    `local_offset` is the first offset on the leader's disk, `remote_offset` the last one that is copied; null if the broker does not know it.
    """
    local = await topics.tier_offsets(cluster, name, topics.EARLIEST_LOCAL, partitions)
    remote = await topics.tier_offsets(cluster, name, topics.LATEST_TIERED, partitions)
    states, _ = await tier_states(listeners, name)
    known = {state.get("partition"): state for state in states}
    fields: dict[int, Row] = {}
    for index in partitions:
        state = known.get(index, {})
        fields[index] = {
            "local_offset": local.get(index),
            "remote_offset": remote.get(index),
            "remote_bytes": state.get("remote_bytes"),
            "remote_segments": state.get("remote_segments"),
            "tier_waits": state.get("waits"),
        }
    return TierView(fields, [trouble.text for trouble in tier_troubles(states)])
