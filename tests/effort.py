"""How many seeds of a repeated test are run: some in `make test`, all in `make chaos`, which sets OTTLA_CHAOS."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("OTTLA_CHAOS"))


def seeds(some: int, *, long: int) -> int:
    """The number of seeds from 0 on."""
    return long if LONG else some
