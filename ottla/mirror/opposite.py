"""Mirrors in the opposite direction: if they keep names, each record would be mirrored in a circle.

Kept names do not show where a topic came from. But a worker of a mirror is a member of a group in the cluster that it writes
to, and its metadata there describe the topics that it brings (`Brings`). So a mirror that keeps names looks in its source for
groups of mirrors that read from its target. It compares cluster ids, because each command chooses its own aliases. A mirror
that no longer runs does not count: a direction can be reversed.

Any user with READ on a group can join it with any metadata. So a group counts only if it has the name of a mirror with the
alias in its metadata, and the cluster has that mirror's positions topic, whose creation needs a permission. RE2 matches the
expressions of others, in linear time.
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
#: A group does not show its members' metadata during a rebalance, which takes a second or two.
LOOKS, LOOK_S = 50, 0.2
#: The most expressions of a member, the most characters of one, and the most members of a group that are read.
EXPRESSIONS_MAX, EXPRESSION_MAX, MEMBERS_MAX = 100, 1_000, 100


@dataclass(frozen=True)
class Foreign:
    """The names that another mirror selects.

    An invalid expression, or one that needs too much work, counts as matching every name if it includes, and none if it
    excludes.
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
    """The topics that a mirror brings into its target, from the cluster `cluster_id` with the alias `alias`."""

    cluster_id: str
    alias: str
    kind: str
    selection: Selection | Foreign

    def encoded(self) -> dict[str, object]:
        """Return the text about this for the members' metadata."""
        included, excluded = list(self.selection.included), list(self.selection.excluded)
        return {"id": self.cluster_id, "alias": self.alias, "names": self.kind, "topics": included, "exclude": excluded}

    def brings(self, topic: str) -> bool:
        """Return whether a topic of the mirror's target is one that the mirror has brought there, or would bring."""
        if topic.endswith(HEARTBEATS):
            return False  # their names show the source
        policy = Policy(self.alias, "", self.kind)
        return topic in self.selection if self.kind == IDENTITY else policy.origin(topic) == self.alias


def decoded(metadata: bytes) -> Brings | None:
    """Return what a member's metadata say about its mirror; None if they do not."""
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
    """Return what running mirrors bring from the cluster `target_id` into the source, by the names of their groups.

    `topics` are those of the source.

    Raises:
        Failure: the source does not answer, or a mirror's group does not leave its rebalance.
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
    """Return the alias of the source in the name of a mirror's group; None for another name."""
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
    """Return the topics of the source that one of the mirrors brings."""
    return [name for name in names if any(each.brings(name) for rows in opposite.values() for each in rows)]
