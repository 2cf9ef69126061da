"""Which places a topic's table may lie in.

A location and a catalog are addresses that the broker opens with its own rights and credentials. A user who may create a topic may set its
configurations, so a topic may name only places that the node's file allows.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.server.config.key import ConfigError, Values
from ottla.server.config.tables.topic_tables import (
    ALLOWED,
    CATALOG,
    FILES,
    FORMAT,
    KEY,
    LOCATION,
    NONE,
    REGISTRY,
    TYPED,
    VALUE,
)

#: Any place.
ANYWHERE = "*"


def check_table(values: Values, broker_values: Values) -> None:
    """Raise ConfigError if a topic's parsed values do not make a table, or name a place that is not allowed."""
    if values[FORMAT] == NONE:
        return
    allowed = broker_values.get(ALLOWED) or ()
    location, catalog = values[LOCATION], values[CATALOG]
    if not location:
        text = f"{FORMAT}={values[FORMAT]} needs {LOCATION}, of the topic or in the brokers' files"
        raise ConfigError(LOCATION, location, text, message=text)
    typed = next((name for name in (VALUE, KEY) if values[name] in TYPED), None)
    if typed is not None and not broker_values.get(REGISTRY):
        text = f"{typed}={values[typed]} needs {REGISTRY} in the brokers' files"
        raise ConfigError(typed, values[typed], text, message=text)
    own = broker_values.get(LOCATION)
    if not _is_within(location, [own] if own else []) and not _is_within(location, allowed):
        raise _refused(LOCATION, location)
    if catalog not in (FILES, broker_values.get(CATALOG), *allowed) and ANYWHERE not in allowed:
        raise _refused(CATALOG, catalog)


def _is_within(location: str, places: Iterable[str]) -> bool:
    """Return whether a location is one of the places or below it."""
    if ANYWHERE in places:
        return True
    parts = location.split("/")
    return ".." not in parts and any(
        location == place or location.startswith(place.rstrip("/") + "/") for place in places if place
    )


def _refused(name: str, value: str) -> ConfigError:
    text = f"{name}={value} is not allowed: brokers allow their own {name}, what is below it, and what their {ALLOWED} names"
    return ConfigError(name, value, text, message=text)
