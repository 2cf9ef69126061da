"""Troubles of topics' tables, by the states that brokers know (`/tables` of their admin listeners)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: A table that is further behind its log, and gives no reason, is a trouble.
LAG_S_MAX = 900.0
#: The troubles that a table may have, the worst first, as names of findings of `ottla doctor`.
LOST, WAITS, BEHIND, NOT_MAINTAINED, REJECTS = (
    "table-lost-records", "table-waits", "table-behind", "table-not-maintained", "table-rejects"
)  # fmt: skip


class TableTrouble(NamedTuple):
    """A trouble of a table, as one of the leaders of its topic's partitions knows it."""

    kind: str
    topic: str
    text: str


def troubles_of(state: Mapping[str, Any]) -> Iterator[TableTrouble]:
    """Yield the troubles in a table's state. A field that the node has not sent is no trouble."""
    topic, at = str(state.get("topic")), f"at node {state.get('node')}"
    if lost := _number(state, "lost"):
        yield TableTrouble(
            LOST, topic, f"its table lacks {lost:.0f} offsets that the log lost before it took them, {at}"
        )
    rows = state.get("partitions")
    lags = (
        [_number(row, "lag_seconds") for row in rows.values() if isinstance(row, dict)]
        if isinstance(rows, dict)
        else []
    )
    if waits := state.get("waits"):
        yield TableTrouble(WAITS, topic, f"its table waits {at}: {waits}")
    elif (lag := max(lags, default=0.0)) > LAG_S_MAX:
        yield TableTrouble(BEHIND, topic, f"its table is {lag:.0f} s behind {at}")
    if failed := state.get("maintenance_failed"):
        yield TableTrouble(NOT_MAINTAINED, topic, f"its table is not maintained {at}: {failed}")
    if rejected := _number(state, "rejected"):
        yield TableTrouble(
            REJECTS, topic, f"{rejected:.0f} records did not fit its table {at}: {topic}__dlq has the reasons"
        )
    if left_out := _number(state, "left_out"):
        yield TableTrouble(REJECTS, topic, f"{left_out:.0f} records did not fit its table {at}, and are left out")


def _number(row: Mapping[str, Any], name: str) -> float:
    value = row.get(name)
    return value if isinstance(value, int | float) else 0.0
