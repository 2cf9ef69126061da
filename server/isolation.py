"""Isolation of callbacks that one caller runs for many owners: waiters of a partition, entries of a timer wheel, listeners.

An exception out of one of them would end the caller's loop, and so drop the callbacks of all other owners, whose registrations
are already gone: they would wait until their time-out, or for ever. Here it is logged with its traceback and the loop goes on.
It is a bug all the same: the simulator fails a run in which a node logs one (invariant 0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVarTuple

log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")


def isolated(callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
    """Call it; log what it raises. Costs nothing but the call where nothing is raised."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("A callback failed: %r%r", callback, arguments)
