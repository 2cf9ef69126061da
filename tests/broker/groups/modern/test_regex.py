"""RE2 matches regular expressions with topic names: any expression takes bounded time and memory."""

from __future__ import annotations

import pytest

from ottla.broker.groups.modern.offload import BYTES_MAX, compiled, matching
from ottla.server.extras import COMPILED_BYTES_MAX

#: With an engine that backtracks each of these takes 0.1 s and more for one name.
CATASTROPHIC = ("(a+)+$", "(a|aa)+$", "(.*a){20}b", "(a*)*b", "(" * 500 + "a" + ")+" * 500 + "b")


def test_the_whole_name_has_to_match() -> None:
    assert matching([compiled("a.*"), compiled("b|bc")], ["a", "ab", "ba", "b", "bc"]) == [["a", "ab"], ["b", "bc"]]


@pytest.mark.parametrize("expression", ["(", "a**", "[", r"(a)\1", "(?=a)", "a{1001}"])
def test_what_is_no_expression_of_re2_is_refused_with_its_reason(expression: str) -> None:
    with pytest.raises(ValueError, match=r"missing|bad|invalid"):
        compiled(expression)


def test_an_expression_of_a_megabyte_is_refused_before_it_is_compiled() -> None:
    assert compiled("a" * BYTES_MAX)
    for expression in ("a" * (BYTES_MAX + 1), "a|" * 500_000, "ä" * (BYTES_MAX // 2 + 1)):
        with pytest.raises(ValueError, match="more than 32767 bytes"):
            compiled(expression)


def test_an_expression_that_takes_too_much_memory_is_refused() -> None:
    assert COMPILED_BYTES_MAX == 1 << 20
    for expression in (r"\pL{200}", "[^x]{900}" * 10, "((a{100}){100}){100}"):
        with pytest.raises(ValueError, match=r"too large|repetition size"):
            compiled(expression)


@pytest.mark.parametrize("expression", CATASTROPHIC)
def test_shapes_that_make_other_engines_backtrack_take_linear_time(expression: str) -> None:
    # An engine that backtracks would not come to an end with one of these names.
    assert matching([compiled(expression)], ["a" * 248 + "!"] * 100) == [[]]
