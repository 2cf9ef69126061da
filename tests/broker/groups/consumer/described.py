"""Consumer groups in lines, in an order that does not depend on who describes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def described(groups: Iterable[Any], offsets_of: Callable[[str], list[tuple[str, int, int]]]) -> list[str]:
    """Describe groups as ConsumerGroupDescribe does, with the offsets of each group."""
    lines = []
    for group in groups:
        epochs = f"{group.group_epoch} {group.assignment_epoch}"
        lines.append(f"{group.group_id} {group.error_code:d} {group.group_state} {epochs} {group.assignor_name}")
        for m in sorted(group.members, key=lambda m: str(m.member_id)):
            held, target = (
                sorted((t.topic_name, p) for t in each.topic_partitions for p in t.partitions)
                for each in (m.assignment, m.target_assignment)
            )
            names, regex = sorted(m.subscribed_topic_names), m.subscribed_topic_regex or ""
            lines.append(
                f"  {m.member_id} {m.member_epoch} {m.member_type} {m.rack_id} {names} {regex!r} has {held} of {target}"
            )
        lines.append(f"  offsets {sorted(offsets_of(group.group_id))}")
    return lines
