"""What Kafka's broker checks of its values as a whole when they are altered while it runs.

Pools of threads grow to twice their size at most with one change, and shrink to half. Local retention is not more than retention,
also without remote storage; at the start a broker without it is allowed to have more. Nodes have neither such threads nor remote
storage. Tools and users of Kafka read these answers nevertheless, and the same limits keep a mistake out of the metadata.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla.protocol.errors import ErrorCode
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import Values
from ottla.server.config.topic import TOPIC_SYNONYMS, topic_defaults

POOLS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
CLEANERS = "log.cleaner.threads"
#: Local retention, the topic configuration that it may not exceed, and that one's name at a broker; -2 means as much as it.
LOCAL_RETENTIONS = (
    ("log.local.retention.ms", "retention.ms", "log.retention.ms"),
    ("log.local.retention.bytes", "retention.bytes", "log.retention.bytes"),
)
AS_RETENTION, UNLIMITED = -2, -1
POOL_NAMES = frozenset((*POOLS, CLEANERS))
#: Kafka's broker looks at local retention with each change of what is a default of topics.
TOPIC_DEFAULTS = frozenset(name for names in TOPIC_SYNONYMS.values() for name, _ in names)


def check_changes(changed: Collection[str], before: Values, after: Values) -> None:
    """Raises ConfigError, with the text of Kafka 4.3.1, for the first value that this change must not lead to."""
    if not POOL_NAMES.isdisjoint(changed):
        check_thread_pools(before, after)
    if not TOPIC_DEFAULTS.isdisjoint(changed):
        _check_local_retention(after)


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


def _check_local_retention(values: Values) -> None:
    of_topics = topic_defaults(values)
    for name, of_topic, retention_name in LOCAL_RETENTIONS:
        local, retention = values[name], of_topics[of_topic]
        if retention <= UNLIMITED or local == AS_RETENTION:
            continue
        failed = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == UNLIMITED:
            raise _invalid(name, local, f"{failed} -1 as {retention_name} value is set as {retention}.")
        if local > retention:
            raise _invalid(name, local, f"{failed} more than {retention_name} property value: {retention}")


def _invalid(name: str, size: int, why: str) -> ConfigError:
    """Kafka's text names the class of its exception."""
    java = f"org.apache.kafka.common.config.ConfigException: {why}"
    message = f"Invalid value {java} for configuration Invalid dynamic configuration"
    return ConfigError(name, size, why, message=message, code=ErrorCode.INVALID_REQUEST)
