"""The size of tests: smallest in `make unit` (`-p tests.unit_only` sets OTTLA_UNIT), full in `make chaos` (which sets
OTTLA_CHAOS).
"""

from __future__ import annotations

import os

LONG = bool(os.environ.get("OTTLA_CHAOS"))
SHORT = bool(os.environ.get("OTTLA_UNIT"))
#: The reason why `make test` leaves a test out, by its mark. "chaos": accidents that are similar to others in `make test`,
#: sessions whose end is waited for, and tests of tests. "compat": the behaviour of other programs and packages, which changes
#: with their releases; `make test` compares with recorded behaviour.
NOT_HERE = None if LONG or os.environ.get("OTTLA_ACCIDENTS") else "`make chaos` and `make chaos ARGS=--short` have it"
ORACLE_ONLY = None if LONG or os.environ.get("OTTLA_COMPAT") else "`make compat` has it"
LEFT_OUT = {"chaos": NOT_HERE, "compat": ORACLE_ONLY}
#: The share of `make test`'s seeds and examples that `make unit` runs.
SHORT_SHARE = 0.2


def seeds(some: int, *, long: int) -> int:
    """Return the number of seeds from 0 on."""
    return long if LONG else examples(some)


def examples(some: int) -> int:
    """Return the number of examples for Hypothesis."""
    return max(1, round(some * SHORT_SHARE)) if SHORT else some


#: The rate of each producer that writes while nodes fail. It is enough to have requests under way at every accident. A producer
#: without a limit would take the processor from other tests, also when each of its records is judged.
RECORDS_PER_SECOND = None if LONG else 300

#: The settings of a cluster whose brokers die or sleep: the defaults are 9 s and 2 s, and a test waits for the end of each
#: session.
SHORT_SESSIONS: dict[str, str] = (
    {} if LONG else {"broker_session_timeout_ms": "3000", "broker_heartbeat_interval_ms": "500"}
)
