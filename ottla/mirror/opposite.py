"""Mirrors that bring topics from the target back to the source: with names that are kept, each record would go round in a circle.

A name does not say where a topic came from then, but a worker of a mirror is a member of a group in the cluster that it writes to, and
says there what it brings (`Brings`). So a mirror that keeps names looks in its source for the groups of others that read from its target.
Cluster ids are compared, as the aliases are each command's own. What no longer runs is no danger: a direction can be turned around.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import NamedTuple

from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.groups import list_groups, members_metadata
from ottla.cli.errors import FAILED, CommandFailed
from ottla.mirror.names import HEARTBEATS, IDENTITY, Policy, Selection

PROTOCOL_TYPE = "ottla-mirror"
#: A group that is in a rebalance does not show what its members say; one takes a second or two.
LOOKS, LOOK_S = 50, 0.2


class Brings(NamedTuple):
    """What a mirror brings into the cluster that it writes to: topics of the cluster `cluster_id`, which it calls `alias`."""

    cluster_id: str
    alias: str
    kind: str
    selection: Selection

    def encoded(self) -> dict[str, object]:
        """Return it as its members say it."""
        included, excluded = list(self.selection.included), list(self.selection.excluded)
        return {"id": self.cluster_id, "alias": self.alias, "names": self.kind, "topics": included, "exclude": excluded}

    def brings(self, topic: str) -> bool:
        """Return whether a topic of the cluster that is written to is, or would be, one of those."""
        if topic.endswith(HEARTBEATS):
            return False  # their names say it
        policy = Policy(self.alias, "", self.kind)
        return topic in self.selection if self.kind == IDENTITY else policy.origin(topic) == self.alias


def decoded(metadata: bytes) -> Brings | None:
    """Return what a member says of its mirror; None if it says nothing of that."""
    try:
        row = json.loads(metadata)["brings"]
        return Brings(
            str(row["id"]), str(row["alias"]), str(row["names"]), Selection(tuple(row["topics"]), tuple(row["exclude"]))
        )
    except (ValueError, TypeError, KeyError, CommandFailed):
        return None


async def opposite_mirrors(source: ClusterClient, target_id: str) -> dict[str, list[Brings]]:
    """Return what mirrors that run bring from the cluster `target_id` into the source, by the name of their group.

    Raises:
        CommandFailed: the source does not say it, or a group is in a rebalance all the time.
    """
    found: dict[str, list[Brings]] = {}
    for group in await list_groups(source):
        if group.protocol_type == PROTOCOL_TYPE:
            said = map(decoded, await _settled(source, group.group_id))
            found[group.group_id] = [each for each in said if each is not None and each.cluster_id == target_id]
    return found


async def _settled(source: ClusterClient, group: str) -> list[bytes]:
    for _ in range(LOOKS):
        if (said := await members_metadata(source, group)) is not None:
            return said
        await asyncio.sleep(LOOK_S)
    raise CommandFailed(f"the mirror of group {group} is in a rebalance", "try again when its workers run", FAILED)


def circles(names: Iterable[str], opposite: dict[str, list[Brings]]) -> list[str]:
    """Return those of the source's topics that one of the mirrors brings."""
    return [name for name in names if any(each.brings(name) for rows in opposite.values() for each in rows)]
