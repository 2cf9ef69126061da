"""The options --to-datetime and --by-duration read texts as Java's SimpleDateFormat and Duration do, in UTC."""

from __future__ import annotations

import pytest

from ottla.cli.shims.java_times import datetime_ms, duration_ms
from ottla.client.errors import ClusterError

#: None: Java rejects the text.
DATES = [
    ("1970-01-01T00:00:02Z", None),
    ("1970-01-01T00:00:02", None),
    ("1970-01-01T05:30:02.000+05:30", 2000),
    ("1970-01-01T05:30:02.000+0530", 1802000),
    ("1970-01-01T05:00:02.000+05", 2000),
    ("1970-01-01T00:00:02.5", 2005),
    ("1970-01-01T00:00:02.500000", None),
    ("1970-01-01T00:00:02.000000", 2000),
    ("1970-01-01", None),
    ("1970-01-01 00:00:02.000", None),
    ("1970-13-01T00:00:02.000", None),
    ("1970-01-01T24:00:00.000", None),
    ("1970-1-1T0:0:2.0", 2000),
    ("1970-02-30T00:00:00.000", None),
    ("1970-01-01T00:00:60.000", None),
    ("1970-01-01T00:00:02.000Zjunk", 2000),
    ("1970-01-01T00:00:02.000z", None),
    ("1970-01-01T00:00:02.000junk", None),
    ("1970-01-01T00:00:02.000+24:00", None),
    ("1970-01-01T00:00:02.000+5:30", None),
    ("1970-01-01T00:00:02.000+05:60", -17998000),
    ("1970-01-01T00:00:02.-5", None),
    (" 1970-01-01T00:00:02.5", 2005),
    ("1970- 01-01T00:00:02.5", 2005),
    ("1970-01-01T00:00:02. 5", 2005),
    ("0000-01-01T00:00:00.000", None),
    ("1970-01-01T00:00:02.000-0530", 18002000),
    ("1970-01-01T00:00:02.000GMT", None),
    ("1970-01-01T00:00:02.000+05:3", -17998000),
    ("+1970-01-01T00:00:02.000", None),
    ("-1970-01-01T00:00:02.000", None),
    ("1970--1-01T00:00:02.000", None),
    ("292278994-08-17T07:12:55.808", None),
    ("1970-01-01T00:00:02.99999999999999999999", None),
    ("1970-01-01T00:00:02.٥", 2005),
    ("T", None),
    ("1T", None),
    ("1970-01-01T", None),
]
#: The milliseconds between a moment and that moment minus the duration. Java rounds them down.
DURATIONS = [
    ("PT1H", 3600000),
    ("P1D", 86400000),
    ("P1DT2H3M4.5S", 93784500),
    ("-PT1H", -3600000),
    ("PT-1H", -3600000),
    ("P-1D", -86400000),
    ("pt1h", 3600000),
    ("P1W", None),
    ("P1M", None),
    ("1h", None),
    ("PT", None),
    ("P1DT", None),
    ("P", None),
    ("PT0.5S", 500),
    ("PT,5S", None),
    ("PT.5S", None),
    ("PT1.S", 1000),
    ("PT1,5S", 1500),
    ("PT-0.5S", -500),
    ("-PT-1.5S", 1500),
    ("PT+1H", 3600000),
    ("+PT1H", 3600000),
    ("PT1H ", None),
    ("PT1.1234567891S", None),
    ("P106751991167300D", None),
    ("P106751991167301D", None),
    ("PT9223372036854775807S", None),
    ("PT9223372036854775808S", None),
    ("PT99999999999999999999H", None),
    ("PT1M1H", None),
    ("PT-1.5S", -1500),
    ("P1DT-24H", 0),
    ("PT1.999999999S", 2000),
    ("PT-0.9999S", -999),
]


@pytest.mark.parametrize(("text", "expected"), DATES)
def test_a_date_is_read_as_java_reads_it(text: str, expected: int | None) -> None:
    if expected is not None:
        assert datetime_ms(text) == expected
    else:
        with pytest.raises(ClusterError, match=r"java\.text\.ParseException"):
            datetime_ms(text)


@pytest.mark.parametrize(("text", "expected"), DURATIONS)
def test_a_duration_is_read_as_java_reads_it(text: str, expected: int | None) -> None:
    if expected is not None:
        assert duration_ms(text) == expected
    else:
        with pytest.raises(ClusterError, match=r"Text cannot be parsed to a Duration|long overflow"):
            duration_ms(text)


def test_a_number_of_many_digits_is_refused_before_it_is_converted() -> None:
    for text in ("PT" + "9" * 100_000 + "S", "1970-01-01T00:00:02." + "9" * 100_000):
        with pytest.raises(ClusterError):
            (duration_ms if text.startswith("P") else datetime_ms)(text)
