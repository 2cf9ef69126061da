"""Format strings and filters of `ottla consume`."""

from __future__ import annotations

import pytest

from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.record_filter import record_filter
from ottla.cli.record_format import compile_format
from ottla.protocol.records.record import Record

NOW = 1_700_000_000_123
RECORD = Record(7, NOW, b"k", b"\xffv", (("trace", b"a"), ("none", None)))
BARE = Record(8, 2**62, None, None, ())


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (r"%t %p %o %k %v\n", b"orders 3 7 k \xffv\n"),
        (r"%s|%S|%V|%K", b"\xffv|2|2|1"),
        (r"%h %H", b"trace=a,none=NULL 2"),
        ("%T %d", b"1700000000123 1700000000123"),
        ("%d{%Y-%m-%dT%H:%M:%S}", b"2023-11-14T22:13:20"),
        ("%v{hex} %k{base64}", b"ff76 aw=="),
        (r"100%% \x41\t\\\0", b"100% A\t\\\0"),
        ("ü{}", "ü{}".encode()),
    ],
)
def test_each_letter_is_what_kcat_or_rpk_print(form: str, expected: bytes) -> None:
    assert compile_format(form)("orders", 3, RECORD) == expected


def test_a_record_without_key_value_and_with_an_impossible_time_can_be_printed() -> None:
    assert compile_format("[%k|%v|%K|%V|%h|%d{%F}]")("t", 0, BARE) == b"[||-1|-1||4611686018427387904]"


@pytest.mark.parametrize("form", ["%q", "%", "%v{rot13}", "%p{hex}", r"\q", "\\", r"\xzz"])
def test_an_unknown_letter_is_wrong_usage_and_the_known_ones_are_named(form: str) -> None:
    with pytest.raises(CommandFailed) as caught:
        compile_format(form)
    assert caught.value.exit_code == USAGE and caught.value.remedy


@pytest.mark.parametrize(
    ("key", "value", "headers", "passes"),
    [
        (None, None, [], True),
        ("^k$", None, [], True),
        ("^kk", None, [], False),
        (None, "v", [], True),
        (None, "^v", [], False),
        (None, None, ["trace"], True),
        (None, None, ["trace=^a$"], True),
        (None, None, ["trace=b"], False),
        (None, None, ["none"], True),
        (None, None, ["none=x"], False),
        ("k", "v", ["trace", "absent"], False),
    ],
)
def test_a_record_passes_if_it_matches_every_filter(
    key: str | None, value: str | None, headers: list[str], passes: bool
) -> None:
    assert record_filter(key, value, headers)(RECORD) is passes


def test_null_matches_no_expression_and_a_wrong_expression_is_wrong_usage() -> None:
    assert not record_filter("", None, [])(BARE)
    assert not record_filter(None, "", [])(BARE)
    with pytest.raises(CommandFailed) as caught:
        record_filter(None, "(", [])
    assert caught.value.exit_code == USAGE and "--value" in caught.value.cause
