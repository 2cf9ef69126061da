"""Numbers, sizes and times as the pages show them."""

from __future__ import annotations

from datetime import UTC, datetime

from ottla.client.failures import plural

NOT_KNOWN = "–"
_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def count(value: float | None) -> str:
    """Return 1234567 as "1,234,567"."""
    return NOT_KNOWN if value is None else f"{value:,.0f}"


def counted(value: float | None, noun: str) -> str:
    """Return 1234 and "topic" as "1,234 topics"."""
    return f"{count(value)} {plural(value or 0, noun)}"


def size(value: float | None) -> str:
    """Return 1536 as "1.5 KB"."""
    if value is None or value < 0:
        return NOT_KNOWN
    number = float(value)
    for unit in _UNITS:
        if number < 1000 or unit == _UNITS[-1]:
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"


def rate(value: float | None) -> str:
    """Return a rate; a small one has a digit after the point."""
    if value is None:
        return NOT_KNOWN
    return f"{value:,.1f}" if 0 < value < 10 else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """Return 90 seconds as "1 min 30 s"."""
    if seconds is None or seconds < 0:
        return NOT_KNOWN
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86_400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86_400} d {whole % 86_400 // 3600} h"


def moment(timestamp_ms: int | None) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds.

    A producer may write any number: if it is no time, the number itself is shown.
    """
    if timestamp_ms is None or timestamp_ms < 0:
        return NOT_KNOWN
    try:
        found = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
    return found.strftime("%Y-%m-%d %H:%M:%S.") + f"{timestamp_ms % 1000:03d}"


NUMBERS = {"count": count, "size": size, "rate": rate, "duration": duration, "moment": moment}
FILTERS = NUMBERS | {"counted": counted, "plural": plural}
