"""The places that a topic's table may have.

A location and a catalog are addresses that the broker opens with its own rights and credentials. A user who may create a topic may set its
configurations, so a topic may name only places that the node's file allows.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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
    REJECTED_SUFFIX,
    TYPED,
    VALUE,
)

#: This allows any place.
ANYWHERE = "*"
#: A topic may add only this to a place. Libraries of stores and formats could take a `%2e%2e`, a tab within `..`, or a `\\` as
#: a way out of the place.
_BELOW = re.compile(r"(?:/(?!\.\.?(?:/|$))[\w.=+@ -]+)*/?", re.ASCII)


def check_table(values: Values, broker_values: Values) -> None:
    """Raise ConfigError if a topic's parsed values do not describe a table, or name a place that is not allowed."""
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


def check_table_name(topic: str, configs: Mapping[str, str]) -> None:
    """Raise ConfigError if a topic's table would have the same name as another topic's table of rejected records."""
    if topic.endswith(REJECTED_SUFFIX) and configs.get(FORMAT, NONE) != NONE:
        owner = topic.removesuffix(REJECTED_SUFFIX)
        text = (
            f"{FORMAT}: {topic} is the table of the rejected records of {owner}, so a topic of this name has no table"
        )
        raise ConfigError(FORMAT, configs[FORMAT], text, message=text)


def _is_within(location: str, places: Iterable[str]) -> bool:
    """Return whether a location is one of the places or below it."""
    if ANYWHERE in places:
        return True
    whole = [place.rstrip("/") for place in places if place]
    return any(location.startswith(each) and _BELOW.fullmatch(location.removeprefix(each)) for each in whole)


def _refused(name: str, value: str) -> ConfigError:
    below = ", what is below it by plain names" if name == LOCATION else ""
    text = f"{name}={value} is not allowed: brokers allow their own {name}{below}, and what their {ALLOWED} names"
    return ConfigError(name, value, text, message=text)
