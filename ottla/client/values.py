"""Numbers and times as people write and read them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from ottla.client.errors import ClusterError
from ottla.client.failures import Kind

#: Numbers of Python have no bound, those of the protocol have.
INT8_MAX, INT16_MAX, INT32_MAX = 2**7 - 1, 2**15 - 1, 2**31 - 1
INT64_MAX = 2**63 - 1
_DIGITS = re.compile(r"-?[0-9]{1,19}")


def number_in(text: str, low: int, high: int) -> int | None:
    """Return the number that a text is in ASCII digits, None if it is none or not within the bounds."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and low <= number <= high else None


def time_ms(option: str, text: str) -> int:
    """ISO 8601 (UTC where no zone is said), or @ and epoch milliseconds."""
    if text.startswith("@") and (epoch_ms := number_in(text[1:], 0, INT64_MAX)) is not None:
        return epoch_ms
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        hint = "write earliest, latest, an offset, 2026-01-31T12:00:00Z, or @1769860800000"
        raise ClusterError(f"{option} {text!r} is no offset and no time", hint, Kind.WRONG) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


def time_text(timestamp_ms: int) -> str | None:
    """Return ISO 8601 in UTC, None for a time that is not set."""
    if timestamp_ms < 0:
        return None
    return datetime.fromtimestamp(timestamp_ms // 1000, UTC).isoformat().replace("+00:00", "Z")
