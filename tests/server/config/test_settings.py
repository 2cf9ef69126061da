"""Settings of a component: their fields name properties, and have the properties' defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from ottla.server.config.broker import BROKER_CONFIGS
from ottla.server.config.settings import read, setting


@dataclass(frozen=True)
class Settings:
    delay_ms: int = setting("group.initial.rebalance.delay.ms")
    retention_ms: int = setting("offsets.retention.minutes", lambda minutes: minutes * 60_000)
    assignors: Sequence[str] = setting("group.consumer.assignors", tuple)
    waiting_ms: int = setting("ottla.group.waiting.heartbeat.interval.ms", default=7)
    constant: int = 5


def test_the_defaults_of_the_fields_are_those_of_the_properties() -> None:
    defaults = {name: key.default for name, key in BROKER_CONFIGS.items()}
    assert defaults["group.initial.rebalance.delay.ms"] == 3_000
    assert Settings() == Settings(3_000, 10_080 * 60_000, ("uniform", "range"), 7, 5)
    assert read(Settings, (defaults | {"ottla.group.waiting.heartbeat.interval.ms": 7}).__getitem__) == Settings()


def test_fields_are_read_from_their_properties_and_converted() -> None:
    values = {
        "group.initial.rebalance.delay.ms": 1,
        "offsets.retention.minutes": 2,
        "group.consumer.assignors": ["range"],
        "ottla.group.waiting.heartbeat.interval.ms": 3,
    }
    assert read(Settings, values.__getitem__) == Settings(1, 120_000, ("range",), 3, 5)
    assert read(Settings, values.__getitem__, constant=6) == Settings(1, 120_000, ("range",), 3, 6)


def test_a_field_of_an_unknown_property_is_refused_where_it_is_declared() -> None:
    with pytest.raises(KeyError, match=r"group\.initial\.rebalance\.dealy\.ms"):
        setting("group.initial.rebalance.dealy.ms")
