"""What a test does less of in `make test` than in `make chaos`, which sets OTTLA_CHAOS: seeds, and waits for sessions to end."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("OTTLA_CHAOS"))


def seeds(some: int, *, long: int) -> int:
    """The number of seeds from 0 on."""
    return long if LONG else some


#: Of a cluster whose brokers die or sleep: the defaults are 9 s and 2 s, and the test waits for the end of each session.
SHORT_SESSIONS: dict[str, str] = (
    {} if LONG else {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}
)
