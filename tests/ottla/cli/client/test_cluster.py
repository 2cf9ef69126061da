"""Bootstrap servers as users write them."""

from __future__ import annotations

import pytest

from ottla.cli.client.cluster import parse_bootstrap
from ottla.cli.errors import USAGE, CommandFailed


@pytest.mark.parametrize(
    "text, expected",
    [
        ("localhost:9093", [("localhost", 9093)]),
        ("kafka", [("kafka", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("PLAINTEXT://a:1", [("a", 1)]),
        ("[::1]:9094,[fe80::1]", [("::1", 9094), ("fe80::1", 9092)]),
    ],
)
def test_good_ones(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == expected


@pytest.mark.parametrize("text", ["", ",", ":9092", "host:port", "host:0", "host:70000", "SSL://a:1", "http://a:1"])
def test_bad_ones_are_wrong_usage(text: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        parse_bootstrap(text)
    assert caught.value.exit_code == USAGE
