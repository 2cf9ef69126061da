"""The settings of a client metrics subscription (KIP-714)."""

from __future__ import annotations

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.config.resource_configs import INTERVAL_MS_MAX, INTERVAL_MS_MIN, check_client_metrics, match_patterns


@pytest.mark.parametrize("interval_ms", [INTERVAL_MS_MIN, INTERVAL_MS_MAX])
def test_an_interval_within_kafkas_bounds_is_taken(interval_ms: int) -> None:
    check_client_metrics({"interval.ms": str(interval_ms), "match": "client_id=app-.*", "metrics": "a,b"})


@pytest.mark.parametrize("interval_ms", [INTERVAL_MS_MIN - 1, INTERVAL_MS_MAX + 1])
def test_an_interval_outside_of_kafkas_bounds_is_refused(interval_ms: int) -> None:
    with pytest.raises(ConfigError, match=f"between {INTERVAL_MS_MIN} and {INTERVAL_MS_MAX}"):
        check_client_metrics({"interval.ms": str(interval_ms)})


@pytest.mark.parametrize(
    "configs", [{"unknown": "1"}, {"match": "client_id"}, {"match": "nothing=a"}, {"match": "client_id=("}]
)
def test_what_is_no_subscription_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        check_client_metrics(configs)


def test_a_pattern_is_for_the_whole_of_the_clients_value() -> None:
    pattern = match_patterns(["client_id=app-[0-9]+"])["client_id"]
    assert pattern.fullmatch("app-12") and not pattern.fullmatch("app-12b")
