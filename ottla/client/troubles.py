"""Troubles of topics' tables and of their remote storage, by the states that brokers know (`/tables`, `/tiers` of their admin listeners)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ottla.client.failures import counted

#: A table that is further behind its log and gives no reason, or a segment that has been sealed for longer and is not copied, is a trouble.
LAG_S_MAX = 900.0
#: The troubles that a table and its copies may have, the worst first, as names of findings of `ottla doctor`.
LOST, WAITS, BEHIND, NOT_MAINTAINED, REJECTS = (
    "table-lost-records", "table-waits", "table-behind", "table-not-maintained", "table-rejects"
)  # fmt: skip
TIER_WAITS, TIER_BEHIND = "tier-waits", "tier-behind"


class StorageTrouble(NamedTuple):
    """A trouble of a table or of copies, as one of the leaders of the topic's partitions knows it."""

    kind: str
    topic: str
    text: str


def table_troubles(state: Mapping[str, Any]) -> Iterator[StorageTrouble]:
    """Yield the troubles in a table's state. A field that the node has not sent is no trouble."""
    topic, at = str(state.get("topic")), f"at node {state.get('node')}"
    if lost := _number(state, "lost"):
        yield StorageTrouble(
            LOST, topic, f"its table lacks {lost:.0f} offsets that the log lost before it took them, {at}"
        )
    rows = state.get("partitions")
    lags = (
        [_number(row, "lag_seconds") for row in rows.values() if isinstance(row, dict)]
        if isinstance(rows, dict)
        else []
    )
    if waits := state.get("waits"):
        yield StorageTrouble(WAITS, topic, f"its table waits {at}: {waits}")
    elif (lag := max(lags, default=0.0)) > LAG_S_MAX:
        yield StorageTrouble(BEHIND, topic, f"its table is {lag:.0f} s behind {at}")
    if failed := state.get("maintenance_failed"):
        yield StorageTrouble(NOT_MAINTAINED, topic, f"its table is not maintained {at}: {failed}")
    if rejected := _number(state, "rejected"):
        yield StorageTrouble(
            REJECTS, topic, f"{rejected:.0f} records did not fit its table {at}: {topic}__dlq has the reasons"
        )
    if left_out := _number(state, "left_out"):
        yield StorageTrouble(REJECTS, topic, f"{left_out:.0f} records did not fit its table {at}, and are left out")


def tier_troubles(states: Iterable[Mapping[str, Any]]) -> Iterator[StorageTrouble]:
    """Yield the troubles of the copies. Partitions of a topic that a node does not copy for the same reason are one trouble."""
    found: defaultdict[tuple[str, str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for state in states:
        reason, at = state.get("waits"), f"at node {state.get('node')}"
        if state.get("failing"):
            found[TIER_WAITS, str(state.get("topic")), at, str(reason)].append(state)
        elif _number(state, "lag_seconds") > LAG_S_MAX:
            found[TIER_BEHIND, str(state.get("topic")), at, str(reason or "")].append(state)
    for (kind, topic, at, reason), rows in found.items():
        which = _partitions([state["partition"] for state in rows if "partition" in state])
        if kind == TIER_WAITS:
            text = f"segments{which} are not copied to remote storage {at}: {reason}"
        else:
            oldest = max(_number(state, "lag_seconds") for state in rows)
            text = f"segments{which} have waited {oldest:.0f} s for their copy to remote storage {at}"
            text += f": {reason}" if reason else ""
        yield StorageTrouble(kind, topic, text)


def _partitions(found: list[object]) -> str:
    if not found:
        return ""
    if len(found) == 1:
        return f" of partition {found[0]}"
    return f" of {counted(len(found), 'partition')}, such as {found[0]},"


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return value if isinstance(value, int | float) else 0.0
