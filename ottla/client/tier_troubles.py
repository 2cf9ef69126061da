"""Troubles of remote storage, by the states that brokers know (`/tiers` of their admin listeners)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.client.failures import counted

#: A segment that has been sealed for longer, and is not copied although nothing has failed, is a trouble.
LAG_S_MAX = 900.0
#: The troubles that copies may have, the worst first, as names of findings of `ottla doctor`.
WAITS, BEHIND = "tier-waits", "tier-behind"


class TierTrouble(NamedTuple):
    """A trouble of the partitions of a topic that one node leads."""

    kind: str
    topic: str
    text: str


def tier_troubles(states: Iterable[Mapping[str, Any]]) -> Iterator[TierTrouble]:
    """Yield the troubles of the copies. Partitions of a topic that a node does not copy for the same reason are one trouble."""
    found: defaultdict[tuple[str, str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for state in states:
        reason, at = state.get("waits"), f"at node {state.get('node')}"
        if state.get("failing"):
            found[WAITS, str(state.get("topic")), at, str(reason)].append(state)
        elif _number(state, "lag_seconds") > LAG_S_MAX:
            found[BEHIND, str(state.get("topic")), at, str(reason or "")].append(state)
    for (kind, topic, at, reason), rows in found.items():
        which = _partitions([state["partition"] for state in rows if "partition" in state])
        if kind == WAITS:
            text = f"segments{which} are not copied to remote storage {at}: {reason}"
        else:
            oldest = max(_number(state, "lag_seconds") for state in rows)
            text = f"segments{which} have waited {oldest:.0f} s for their copy to remote storage {at}"
            text += f": {reason}" if reason else ""
        yield TierTrouble(kind, topic, text)


def _partitions(found: list[object]) -> str:
    if not found:
        return ""
    if len(found) == 1:
        return f" of partition {found[0]}"
    return f" of {counted(len(found), 'partition')}, such as {found[0]},"


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return value if isinstance(value, int | float) else 0.0
