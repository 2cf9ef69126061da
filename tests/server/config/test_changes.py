"""Thread pools that are altered to more than twice, or to less than half, of their size, and local retention above retention.

The texts are those of Kafka 4.3.1.
"""

from __future__ import annotations

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.server.config.dynamic import Levels, broker_values, check_changes, check_thread_pools
from ottla.server.config.key import ConfigError

FILE = {"num.replica.fetchers": "4", "log.cleaner.threads": "4"}
BEFORE = broker_values(Levels({}, {}, FILE))
IO = "Dynamic thread count update validation failed for num.io.threads"
CLEANERS = "Log cleaner threads"


@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("num.io.threads", 17, f"{IO}=17, value should not be greater than double the current value 8"),
        ("num.io.threads", 3, f"{IO}=3, value should be at least half the current value 8"),
        ("log.cleaner.threads", 9, f"{CLEANERS} cannot be increased to more than double the current value 4"),
        ("log.cleaner.threads", 1, f"{CLEANERS} cannot be reduced to less than half the current value 4"),
        ("log.cleaner.threads", 0, f"{CLEANERS} should be at least 1"),
    ],
)
def test_a_pool_that_grows_or_shrinks_too_much_is_refused_in_kafkas_words(name: str, size: int, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_thread_pools(BEFORE, {**BEFORE, name: size})
    java = f"org.apache.kafka.common.config.ConfigException: {why}"
    assert str(refused.value) == f"Invalid value {java} for configuration Invalid dynamic configuration"
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("name", "sizes"), [("num.io.threads", (4, 16)), ("log.cleaner.threads", (2, 8))])
def test_half_and_twice_are_allowed(name: str, sizes: tuple[int, int]) -> None:
    for size in sizes:
        check_thread_pools(BEFORE, {**BEFORE, name: size})


def test_a_value_that_is_refused_otherwise_leaves_the_pool_as_it_is() -> None:
    check_thread_pools(BEFORE, broker_values(Levels({"num.io.threads": "many"}, {}, FILE), []))


LOCAL_MS, LOCAL_BYTES = "log.local.retention.ms", "log.local.retention.bytes"
MORE, NOT_ALL = "Value must not be more than", "Value must not be -1 as"
WEEK_MS = 604_800_000


@pytest.mark.parametrize(
    ("configs", "why"),
    [
        ({"log.retention.ms": "10", LOCAL_MS: "11"}, f"11 for configuration {LOCAL_MS}: {MORE} log.retention.ms property value: 10"),
        ({LOCAL_MS: str(169 * 3_600_000)}, f"608400000 for configuration {LOCAL_MS}: {MORE} log.retention.ms property value: {WEEK_MS}"),
        ({LOCAL_MS: "-1"}, f"-1 for configuration {LOCAL_MS}: {NOT_ALL} log.retention.ms value is set as {WEEK_MS}."),
        ({"log.retention.bytes": "5", LOCAL_BYTES: "6"}, f"6 for configuration {LOCAL_BYTES}: {MORE} log.retention.bytes property value: 5"),
        ({"log.retention.bytes": "5", LOCAL_BYTES: "-1"}, f"-1 for configuration {LOCAL_BYTES}: {NOT_ALL} log.retention.bytes value is set as 5."),
        ({"log.retention.ms": "10", LOCAL_MS: "10"}, None),
        ({"log.retention.ms": "10", LOCAL_MS: "-2"}, None),
        ({"log.retention.ms": "-1", LOCAL_MS: "999999999999"}, None),
        ({LOCAL_BYTES: "6"}, None),
    ],
)  # fmt: skip
def test_local_retention_above_retention_is_refused_while_a_broker_runs(
    configs: dict[str, str], why: str | None
) -> None:
    """Kafka's broker does so also without remote storage (DynamicLogConfig)."""
    after = broker_values(Levels(configs, {}, FILE))
    if why is None:
        check_changes(set(configs), BEFORE, after)
        return
    with pytest.raises(ConfigError) as refused:
        check_changes(set(configs), BEFORE, after)
    java = f"org.apache.kafka.common.config.ConfigException: Invalid value {why}"
    assert str(refused.value) == f"Invalid value {java} for configuration Invalid dynamic configuration"
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    check_changes({"num.io.threads"}, BEFORE, after)
