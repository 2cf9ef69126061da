"""The size of a test: least in `make unit` (`-p tests.unit_only` sets OTTLA_UNIT), all in `make chaos` (which sets OTTLA_CHAOS)."""

from __future__ import annotations

import os

LONG = bool(os.environ.get("OTTLA_CHAOS"))
SHORT = bool(os.environ.get("OTTLA_UNIT"))
#: Why `make test` leaves a test out, by its mark. "chaos": accidents that others in `make test` are much like, sessions whose end is
#: waited for, and tests of tests. "compat": what other programs and packages do, which changes with their releases: `make test` compares
#: with what was written down of them.
NOT_HERE = None if LONG or os.environ.get("OTTLA_ACCIDENTS") else "`make chaos` and `make chaos ARGS=--short` have it"
ORACLE_ONLY = None if LONG or os.environ.get("OTTLA_COMPAT") else "`make compat` has it"
LEFT_OUT = {"chaos": NOT_HERE, "compat": ORACLE_ONLY}
#: Of the seeds and examples of `make test`.
SHORT_SHARE = 0.2


def seeds(some: int, *, long: int) -> int:
    """The number of seeds from 0 on."""
    return long if LONG else examples(some)


def examples(some: int) -> int:
    """The number of examples of Hypothesis."""
    return max(1, round(some * SHORT_SHARE)) if SHORT else some


#: Of each producer that writes while nodes fail: enough that something is under way at every accident, where one that writes as fast as
#: it can would take the processor of the tests beside it, and again when each of its records is judged.
RECORDS_PER_SECOND = None if LONG else 300

#: Of a cluster whose brokers die or sleep: the defaults are 9 s and 2 s, and the test waits for the end of each session.
SHORT_SESSIONS: dict[str, str] = (
    {} if LONG else {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}
)
