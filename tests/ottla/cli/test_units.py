"""Numbers as people read them in tables."""

from __future__ import annotations

import pytest

from ottla.cli.output import plain_table
from ottla.cli.units import setting_text


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7 d)"),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("max.message.bytes", "1048588", "1048588 (1.0 MB)"),
        ("delete.retention.ms", "5400000", "5400000 (1 h 30 min)"),
        ("replica.lag.time.max.ms", "1500", "1500 (1.5 s)"),
        ("log.retention.hours", "168", "168 (7 d)"),
        ("flush.messages", "9223372036854775807", "9223372036854775807 (the largest value)"),
        ("producer_byte_rate", "1048576", "1048576 (1 MiB/s)"),
        ("min.compaction.lag.ms", "0", "0"),
        ("retention.bytes", "-1", "-1"),
        ("request_percentage", "12.5", "12.5"),
        ("min.insync.replicas", "2", "2"),
        ("broker.rack", None, None),
    ],
)
def test_a_setting_says_how_much_it_is(name: str, value: str | None, shown: str | None) -> None:
    assert setting_text(name, value) == shown


def test_a_table_has_sizes_in_its_columns_of_bytes_and_plain_numbers_elsewhere() -> None:
    row = {"broker": 4, "bytes": 12_345_678, "bytes_moved": 0, "free_bytes": None, "records": 1234567}
    (_, line) = plain_table([row], list(row))
    assert line.split() == ["4", "12.3", "MB", "0", "B", "-", "1234567"]
