"""The partition in which a key lives is Java's hash, or clients would ask the wrong broker after a move from Apache Kafka."""

from __future__ import annotations

import pytest

from ottla.broker.coordinator.coordinator import java_hash_code, partition_for


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("console-consumer-12345", None),
        ("polygenelubricants", -(2**31)),
        ("ünïcödé", None),
        ("\U0001f600", 1772899),
    ],
)
def test_java_hash(text: str, value: int | None) -> None:
    units = text.encode("utf-16-be")
    expected = 0
    for position in range(0, len(units), 2):
        expected = expected * 31 + int.from_bytes(units[position : position + 2], "big")
    expected = (expected + 2**31) % 2**32 - 2**31
    assert java_hash_code(text) == expected
    if value is not None:
        assert expected == value


def test_the_number_without_a_positive_twin_counts_as_zero() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_negative_hashes_are_made_positive_before_the_modulo() -> None:
    negative = next(f"group-{n}" for n in range(1000) if java_hash_code(f"group-{n}") < 0)
    assert partition_for(negative, 50) == -java_hash_code(negative) % 50
