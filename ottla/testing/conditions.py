"""The condition of a cluster: which of its nodes run, and which faults exist. A test that shares a cluster leaves it as it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.testing.inside.faults import NodeFaults
from ottla.testing.links import Direction, WayState
from ottla.testing.spoiled import DAY_MS


class Condition(NamedTuple):
    """The condition of a cluster at one moment."""

    faults: Mapping[int, NodeFaults]
    #: The directions that are cut or slow.
    ways: Mapping[Direction, WayState]
    running: frozenset[int]
    paused: frozenset[int]

    @classmethod
    def as_started(cls, node_ids: Iterable[int]) -> Condition:
        """Return the condition of a cluster that has just started."""
        running = frozenset(node_ids)
        return cls(dict.fromkeys(running, NodeFaults()), {}, running, frozenset())

    def lasting_since(self, before: Condition) -> list[str]:
        """Return in words what has happened since then that `heal` does not undo: kills, pauses, and advanced time."""
        dead, asleep = before.running - self.running, self.paused - before.paused
        found = [f"node {node_id} does not run" for node_id in sorted(dead)]
        found += [f"node {node_id} is paused" for node_id in sorted(asleep)]
        passed_ms = self.advanced_ms - before.advanced_ms
        if passed_ms:
            found.append(f"its time is {passed_ms / DAY_MS:.3g} days ahead")
        return found

    @property
    def advanced_ms(self) -> int:
        return max(faults.advanced_ms for faults in self.faults.values())
