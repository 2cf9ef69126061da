"""The two texts of time that --reset-offsets takes, read as Java reads them: --to-datetime and --by-duration.

Kafka reads a date with Java's SimpleDateFormat (yyyy-MM-dd'T'HH:mm:ss.SSS and a zone), which differs from ISO 8601 in four
ways: a number may have any count of digits, so that `.5` is five milliseconds; blanks may stand before a number; what follows
the zone is ignored; `+0530` is five hours, because a zone without a colon has no minutes. A duration is read by Java's
Duration.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from ottla.cli.shims.exceptions import rejected
from ottla.client.errors import ClusterError
from ottla.protocol.errors import ErrorCode

_NUMBER = r"\s*(\d{1,18})"
_DATE = re.compile(rf"{_NUMBER}-{_NUMBER}-{_NUMBER}T{_NUMBER}:{_NUMBER}:{_NUMBER}\.{_NUMBER}")
_COLON_ZONE = re.compile(r"([+-])(\d\d):([0-5]\d)", re.ASCII)
_HOUR_ZONE = re.compile(r"([+-])(\d\d)", re.ASCII)
_DURATION = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?)(\d+)(?:[.,](\d{0,9}))?S)?)?", re.I | re.ASCII
)
#: The most digits that are read. A longer number overflows a Java long, and would take Python quadratic time.
_DIGITS_MAX = 20
_LONG_MAX = (1 << 63) - 1


def datetime_ms(text: str) -> int:
    """Return milliseconds since 1970 for YYYY-MM-DDTHH:mm:SS.sss, in UTC where no zone is given.

    Raises:
        CommandFailed: Kafka's tool does not take the text, or the year is not one of 1 to 9999.
    """
    day, _, time = text.partition("T")
    if not day or not time:
        raise _wrong(
            "java.text.ParseException: Error parsing timestamp. It does not contain a 'T' according to ISO8601 format"
        )
    if not any(mark in time.partition("T")[0] for mark in "+-Z"):
        text += "Z"
    found = _DATE.match(text)
    offset = None if found is None else _zone(text[found.end() :])
    if found is not None and offset is not None:
        year, month, day_of_month, hour, minute, second, milliseconds = map(int, found.groups())
        try:
            moment = datetime(year, month, day_of_month, hour, minute, second, tzinfo=UTC)
        except (ValueError, OverflowError):
            milliseconds = 1_000  # so the result is out of range, as after a number of milliseconds that is too large
        if milliseconds < 1_000:
            return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1) + milliseconds - offset
    raise _wrong(f'java.text.ParseException: Unparseable date: "{text}"')


def _zone(text: str) -> int | None:
    """Return the offset of the zone that the text begins with, in milliseconds, or None if there is none."""
    if text.startswith("Z"):
        return 0
    found = _COLON_ZONE.match(text) or _HOUR_ZONE.match(text)
    if found is None or int(found[2]) > 23:
        return None
    minutes = int(found[2]) * 60 + (int(found[3]) if found.re is _COLON_ZONE else 0)
    return minutes * 60_000 * (-1 if found[1] == "-" else 1)


def duration_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 duration, each part of which may be negative.

    Raises:
        CommandFailed: Java's Duration does not take the text.
    """
    found = _DURATION.fullmatch(text)
    if found is None or found[3] in ("T", "t") or not (found[2] or found[3]):
        raise _wrong("Text cannot be parsed to a Duration")
    sign, days, _, hours, minutes, seconds_sign, seconds, fraction = found.groups()
    total = 0
    for name, number, unit in (
        ("days", days, 86_400),
        ("hours", hours, 3_600),
        ("minutes", minutes, 60),
        ("seconds", seconds, 1),
    ):
        if number is None:
            continue
        if len(number.lstrip("+-0")) > _DIGITS_MAX or abs(int(number)) * unit > _LONG_MAX:
            raise _wrong(f"Text cannot be parsed to a Duration: {name}")
        total += int(number) * unit * (-1 if name == "seconds" and seconds_sign == "-" else 1)
    nanoseconds = total * 1_000_000_000
    if fraction:
        nanoseconds += int(fraction.ljust(9, "0")) * (-1 if seconds_sign == "-" else 1)
    if sign == "-":
        nanoseconds = -nanoseconds
    if abs(nanoseconds) >= _LONG_MAX * 1_000_000:
        raise _wrong("long overflow")
    # The result is now minus the duration, rounded down to a millisecond.
    return -(-nanoseconds // 1_000_000)


def _wrong(message: str) -> ClusterError:
    return rejected(ErrorCode.INVALID_REQUEST, message)
