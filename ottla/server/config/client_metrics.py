"""Configurations of client-metrics subscriptions (KIP-714): which metrics, how often, from which clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.protocol.errors import ErrorCode
from ottla.server import extras
from ottla.server.config.columns import INT, LIST, MEDIUM
from ottla.server.config.errors import ConfigError
from ottla.server.config.key import ConfigKey, table
from ottla.server.config.validators import names
from ottla.server.extras import Pattern

# fmt: off
CLIENT_METRICS_CONFIGS = table(
    ConfigKey("metrics", LIST, [], MEDIUM, "Prefixes of the metrics that clients push; * means all.", names()),
    ConfigKey("interval.ms", INT, 300_000, MEDIUM, "How often clients push their metrics."),
    ConfigKey("match", LIST, [], MEDIUM, "Which clients, as selector=pattern; all when empty.", names()),
)
# fmt: on

INTERVAL_MS_MIN = 100
INTERVAL_MS_MAX = 3_600_000
SELECTORS = frozenset(
    {
        "client_instance_id",
        "client_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)


def check_client_metrics(configs: Mapping[str, str]) -> None:
    """Raises ConfigError if these configurations of a subscription are invalid."""
    for name, text in configs.items():
        key = CLIENT_METRICS_CONFIGS.get(name)
        if key is None:
            message = f"Unknown client metrics configuration: {name}"
            raise ConfigError(name, text, "", message=message, code=ErrorCode.INVALID_REQUEST)
        value = key.parse(text)
        if name == "interval.ms" and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            message = f"Invalid value {value} for interval.ms, interval must be between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX} (1 hour)"
            raise ConfigError(name, value, "", message=message, code=ErrorCode.INVALID_REQUEST)
        if name == "match":
            match_patterns(value)


def match_patterns(entries: Sequence[str]) -> dict[str, Pattern]:
    """Returns selector -> pattern; the pattern must match the client's whole value.

    The patterns are RE2's, which take linear time: a broker compares them with what clients say of themselves.
    """
    patterns: dict[str, Pattern] = {}
    for entry in entries:
        selector, _, pattern = entry.partition("=")
        try:
            # Kafka splits the entry at each "=", so a pattern has none; nor is it empty.
            if not pattern or "=" in pattern or selector.strip() not in SELECTORS:
                raise ValueError(entry)
            patterns[selector.strip()] = extras.compiled(pattern.strip())
        except ValueError as error:
            message = f"Illegal client matching pattern: {entry}"
            if str(error) == extras.NO_ENGINE:
                message += f"; {error}"
            raise ConfigError("match", entry, "", message=message) from None
    return patterns
