"""Isolation of callbacks that one caller runs for many owners: waiters of a partition, entries of a timer wheel, listeners.

An exception in one of them would end the caller's loop, and so drop the callbacks of all other owners, whose registrations
are already removed: they would wait until their timeout, or for ever. Here it is logged with its traceback and the loop continues.
It is still a bug: the simulator fails a run in which a node logs one (invariant 0).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVarTuple

log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")


def isolated(callback: Callable[[*Arguments], object], *arguments: *Arguments) -> None:
    """Calls the callback and logs its exception. Without an exception it costs only the call."""
    try:
        callback(*arguments)
    except Exception:
        log.exception("A callback failed: %r%r", callback, arguments)
