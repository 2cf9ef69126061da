"""Pools of threads grow to twice their size at most with one change, and shrink to half.

Nodes have no such threads. Tools and users of Kafka read these answers nevertheless, and the same limit keeps a mistake out of the metadata.
"""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values

POOLS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
CLEANERS = "log.cleaner.threads"
NAMES = frozenset((*POOLS, CLEANERS))


def check_thread_pools(before: Values, after: Values) -> None:
    """Raises ConfigError, with the text of Kafka 4.3.1, for the first pool whose size changes too much."""
    for name in POOLS:
        size, now = after[name], before[name]
        failed = f"Dynamic thread count update validation failed for {name}={size}, value should"
        if size < now // 2:
            raise _invalid(name, size, f"{failed} be at least half the current value {now}")
        if size > now * 2:
            raise _invalid(name, size, f"{failed} not be greater than double the current value {now}")
    size, now = after[CLEANERS], before[CLEANERS]
    if size < 1:
        raise _invalid(CLEANERS, size, "Log cleaner threads should be at least 1")
    if size < now // 2:
        raise _invalid(
            CLEANERS, size, f"Log cleaner threads cannot be reduced to less than half the current value {now}"
        )
    if size > now * 2:
        raise _invalid(
            CLEANERS, size, f"Log cleaner threads cannot be increased to more than double the current value {now}"
        )


def _invalid(name: str, size: int, why: str) -> ConfigError:
    """Kafka's text names the class of its exception."""
    java = f"org.apache.kafka.common.config.ConfigException: {why}"
    message = f"Invalid value {java} for configuration Invalid dynamic configuration"
    return ConfigError(name, size, why, message=message, code=ErrorCode.INVALID_REQUEST)
