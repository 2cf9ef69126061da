"""Mirrors that bring topics from the target back to the source: with names that are kept, each record would go round in a circle.

A name does not say where a topic came from then, but a worker of a mirror is a member of a group in the cluster that it writes to, and
says there what it brings (`Brings`). So a mirror that keeps names looks in its source for the groups of others that read from its target.
Cluster ids are compared, as the aliases are each command's own. What no longer runs is no danger: a direction can be turned around.

Each user that may read with one group can join it and say anything. So a group counts only if it has a mirror's name for the alias that it
gives, and the cluster has the positions topic of that mirror, which takes rights to make. Expressions of others are matched by RE2, in
linear time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Container, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, Kind
from ottla.client.groups import list_groups, members_metadata
from ottla.mirror.names import HEARTBEATS, IDENTITY, Policy, Selection
from ottla.server.extras import Pattern, compiled
from ottla.server.regex.automaton import TooMuchWork

PROTOCOL_TYPE = "ottla-mirror"
#: A group that is in a rebalance does not show what its members say; one takes a second or two.
LOOKS, LOOK_S = 50, 0.2
#: The expressions of a member that count, their length, and the members of a group that count.
EXPRESSIONS_MAX, EXPRESSION_MAX, MEMBERS_MAX = 100, 1_000, 100


@dataclass(frozen=True)
class Foreign:
    """Names that another program says it selects. An expression that is not valid, or needs too much work, may match each
    name, and excludes none.
    """

    included: tuple[str, ...]
    excluded: tuple[str, ...]

    def __contains__(self, name: str) -> bool:
        return any(_matches(each, name, unclear=True) for each in self.included) and not any(
            _matches(each, name, unclear=False) for each in self.excluded
        )


def _matches(expression: str, name: str, *, unclear: bool) -> bool:
    pattern = _compiled(expression)
    try:
        return unclear if pattern is None else bool(pattern.fullmatch(name))
    except TooMuchWork:
        return unclear


@lru_cache(maxsize=EXPRESSIONS_MAX)
def _compiled(expression: str) -> Pattern | None:
    try:
        return compiled(expression)
    except ValueError:
        return None


class Brings(NamedTuple):
    """The topics that a mirror brings into its target: those of the cluster `cluster_id`, which it calls `alias`."""

    cluster_id: str
    alias: str
    kind: str
    selection: Selection | Foreign

    def encoded(self) -> dict[str, object]:
        """Return the text by which the members of the mirror say it."""
        included, excluded = list(self.selection.included), list(self.selection.excluded)
        return {"id": self.cluster_id, "alias": self.alias, "names": self.kind, "topics": included, "exclude": excluded}

    def brings(self, topic: str) -> bool:
        """Return whether a topic of the mirror's target is, or would be, one that the mirror has brought there."""
        if topic.endswith(HEARTBEATS):
            return False  # their names say it
        policy = Policy(self.alias, "", self.kind)
        return topic in self.selection if self.kind == IDENTITY else policy.origin(topic) == self.alias


def decoded(metadata: bytes) -> Brings | None:
    """Return what a member says of its mirror; None if it says nothing of that."""
    try:
        row = json.loads(metadata)["brings"]
        included, excluded = tuple(row["topics"]), tuple(row["exclude"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    listed = (*included, *excluded)
    if len(listed) > EXPRESSIONS_MAX or any(type(each) is not str or len(each) > EXPRESSION_MAX for each in listed):
        return None
    return Brings(str(row.get("id")), str(row.get("alias")), str(row.get("names")), Foreign(included, excluded))


async def opposite_mirrors(source: ClusterClient, target_id: str, topics: Container[str]) -> dict[str, list[Brings]]:
    """Return what mirrors that run bring from the cluster `target_id` into the source, which has `topics`, by the name of their group.

    Raises:
        Failure: the source does not say it, or a mirror's group is in a rebalance all the time.
    """
    found: dict[str, list[Brings]] = {}
    for group in await list_groups(source):
        alias = _alias_of(group.group_id) if group.protocol_type == PROTOCOL_TYPE else None
        if alias is not None and Policy(alias, "").positions_topic in topics:
            said = dict.fromkeys(map(decoded, (await _settled(source, group.group_id))[:MEMBERS_MAX]))
            found[group.group_id] = [
                each for each in said if each is not None and each.cluster_id == target_id and each.alias == alias
            ]
    return found


def _alias_of(group: str) -> str | None:
    """Return the alias of the source in the name of a mirror's group; None if it is no such name."""
    kind, _, aliases = group.partition(".")
    alias, dot, target = aliases.partition(".")
    return alias if kind == PROTOCOL_TYPE and dot and target else None


async def _settled(source: ClusterClient, group: str) -> list[bytes]:
    for _ in range(LOOKS):
        if (said := await members_metadata(source, group)) is not None:
            return said
        await asyncio.sleep(LOOK_S)
    raise Failure(f"the mirror of group {group} is in a rebalance", "try again when its workers run", Kind.FAILED)


def circles(names: Iterable[str], opposite: dict[str, list[Brings]]) -> list[str]:
    """Return those of the source's topics that one of the mirrors brings."""
    return [name for name in names if any(each.brings(name) for rows in opposite.values() for each in rows)]
