"""The states of a share group, which follow from its members: there is nothing to wait for between assignment and use."""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """Values are the names on the wire."""

    EMPTY = "Empty"
    STABLE = "Stable"
