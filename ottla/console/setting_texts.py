"""Settings as the pages show and read them: `604800000` of retention.ms is "7 days", and "7 days" is 604800000.

The unit is the end of a setting's name, as Kafka names its settings: `.ms`, `.bytes`. A text that is no number with a unit goes
unchanged to the broker, which checks it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

from ottla.client import configs
from ottla.client.failures import Failure, Kind, plural
from ottla.client.values import INT64_MAX
from ottla.console.texts import size
from ottla.server.config.resource_configs import TOPIC_CONFIGS

SENTENCE_CHARS_MAX = 220
DOCUMENTATION_CHARS_MAX = 4_000
SETTINGS_MAX = 100
#: The form of a new topic has a field for each of these settings, in which most topics differ.
COMMON = (
    "cleanup.policy", "retention.ms", "retention.bytes", "min.insync.replicas", "max.message.bytes", "compression.type",
)  # fmt: skip
#: Settings of tiered storage (KIP-405), which few clusters use.
_TIERED = ("remote.", "local.retention.")
_SPANS = (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("ms", 1))
_MS = {
    "ms": 1, "s": 1_000, "sec": 1_000, "second": 1_000, "min": 60_000, "m": 60_000, "minute": 60_000, "h": 3_600_000, "hour": 3_600_000,
    "d": 86_400_000, "day": 86_400_000, "w": 604_800_000, "week": 604_800_000,
}  # fmt: skip
_BYTES = {unit: 1 << shift for shift, units in ((0, "b byte"), (10, "k kb kib"), (20, "m mb mib"), (30, "g gb gib"), (40, "t tb tib"))
          for unit in units.split()}  # fmt: skip
_NUMBER = re.compile(r"(\d{1,18}(?:\.\d{1,9})?) ?([a-zA-Z]{1,8})")
_TAG = re.compile(r"<[^<>]{0,200}>")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


class SettingRow(NamedTuple):
    """A setting of a topic: its value, that value in a readable unit, its source, and the value that it would have without it."""

    name: str
    value: str | None
    human: str | None
    source: str
    is_default: bool
    is_own: bool
    read_only: bool
    #: The levels below: for each its name, and its value there with the readable one.
    below: list[tuple[str, str | None, str | None]]
    sentence: str
    documentation: str

    @property
    def is_tiered(self) -> bool:
        return self.name.startswith(_TIERED)


def setting_rows(entries: Iterable[Any]) -> list[SettingRow]:
    """Return a row for each entry of a DescribeConfigs response."""
    rows = []
    for entry in entries:
        value = "(hidden)" if entry.is_sensitive else entry.value
        text = (entry.documentation or "")[:DOCUMENTATION_CHARS_MAX]
        rows.append(
            SettingRow(
                entry.name,
                value,
                human(entry.name, value),
                configs.SOURCES.get(entry.config_source, "unknown"),
                entry.config_source == configs.DEFAULT_SOURCE,
                entry.config_source == configs.TOPIC_SOURCE,
                entry.read_only,
                [
                    (configs.SOURCES.get(row.source, "unknown"), row.value, human(entry.name, row.value))
                    for row in entry.synonyms[1:]
                ],
                sentence(text),
                _TAG.sub("", text),
            )
        )
    return rows


def common() -> list[tuple[str, str]]:
    """Return the settings for which the form of a new topic has fields, each with its explanation."""
    return [(name, sentence(TOPIC_CONFIGS[name].doc)) for name in COMMON]


def human(name: str, value: str | None) -> str | None:
    """Return a value in the unit of its name, in readable form; None if that adds nothing to the value."""
    if value is None or not re.fullmatch(r"-?\d{1,19}", value):
        return None
    number = int(value)
    if number == INT64_MAX or (number == -1 and name in ("retention.ms", "retention.bytes")):
        return "no limit"
    if number == -2 and name.startswith("local.retention."):
        return "as retention"
    if number >= 1000 and name.endswith(".ms"):
        return span(number)
    if number >= 1024 and name.endswith(".bytes"):
        return size(number).replace(".0 ", " ")
    return None


def span(ms: int) -> str:
    """Return a duration in its two largest units: 604800000 → "7 days", 5400000 → "1 hour 30 minutes"."""
    parts: list[str] = []
    for unit, length in _SPANS:
        count, ms = divmod(ms, length)
        if count:
            parts.append(f"{count:,} {unit if unit == 'ms' else plural(count, unit)}")
        elif parts:
            break
        if len(parts) == 2:
            break
    return " ".join(parts) or "0 ms"


def raw(name: str, text: str) -> str:
    """Return the value that a broker takes for a text with a unit: "7 days" → "604800000". Any other text stays as it is.

    Raises:
        Failure: the setting cannot have this unit.
    """
    found = _NUMBER.fullmatch(text.strip())
    units = _MS if name.endswith(".ms") else _BYTES if name.endswith(".bytes") else None
    if found is None or units is None:
        return text
    unit = found[2].lower()
    factor = units.get(unit) or units.get(unit.removesuffix("s"))
    if factor is None:
        known = "7 days, 12 h, 90 s, 500 ms" if units is _MS else "1 GB, 512 MB, 64 KB (of 1024)"
        raise Failure(f"{name} is not given in {found[2]!r}", f"for example {known}", Kind.WRONG)
    number = Decimal(found[1]) * factor
    if number != int(number):
        raise Failure(f"{text.strip()!r} is no whole number of {'ms' if units is _MS else 'bytes'}", None, Kind.WRONG)
    return str(int(number))


def read_lines(text: str) -> dict[str, str]:
    """Return the settings in lines NAME=VALUE.

    Raises:
        Failure: a line has another form, or there are too many.
    """
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise Failure(f"the line {line[:80]!r} is not NAME=VALUE", "for example segment.ms=1 day", Kind.WRONG)
        found[name] = raw(name, value)
    if len(found) > SETTINGS_MAX:
        raise Failure(f"{len(found)} settings, more than {SETTINGS_MAX}", None, Kind.WRONG)
    return found


def sentence(documentation: str) -> str:
    """Return the first sentence of a text, without the markup in Kafka's descriptions."""
    first = _SENTENCE_END.split(_TAG.sub("", documentation[:DOCUMENTATION_CHARS_MAX]).strip(), maxsplit=1)[0]
    text = " ".join(first.split())
    return text if len(text) <= SENTENCE_CHARS_MAX else f"{text[:SENTENCE_CHARS_MAX].rsplit(' ', 1)[0]} …"
