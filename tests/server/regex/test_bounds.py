"""The matcher of a plain install rejects some expressions, and the work of a hostile one is bounded."""

from __future__ import annotations

import pytest

from ottla.server.regex.automaton import KEPT_SETS_MAX, KEPT_STATES_MAX, WORK_MAX, TooMuchWork, compile
from ottla.server.regex.syntax import SIZE_MAX, TIMES_MAX, InvalidExpression

#: Each leads to another set of states after nearly every character.
HOSTILE = ("(a|b)*a(a|b){300}c", "(.*a){20}b|(a|b)*b(a|b){100}", "((a{1,9}|b){1,9}){1,9}c")


@pytest.mark.parametrize(
    "expression", ["(a{100}){100}", "(a{1000}){1000}", "((a{2}){100}|b){6}", "a{1001}", "a{99999999999}"]
)
def test_repetitions_of_repetitions_are_multiplied_and_bounded(expression: str) -> None:
    assert TIMES_MAX == 1_000
    with pytest.raises(InvalidExpression, match="invalid repetition size"):
        compile(expression)


def test_an_expression_of_too_many_states_is_refused() -> None:
    for expression in ("a{1000}" * 40, "(abcdefgh){1000}" * 5, "a" * 40_000):
        assert len(expression) < SIZE_MAX
        with pytest.raises(InvalidExpression, match="too large"):
            compile(expression)


def test_the_longest_expression_without_repetitions_is_served() -> None:
    assert compile("a" * 32_767).fullmatch("a" * 32_767)


def test_parentheses_may_be_as_deep_as_an_expression_is_long() -> None:
    assert compile("(" * 10_000 + "a" + ")+" * 10_000).fullmatch("aaa")


@pytest.mark.parametrize("expression", HOSTILE)
def test_the_work_of_a_hostile_expression_is_bounded_over_all_texts(expression: str) -> None:
    pattern = compile(expression, work_max=50_000)
    texts = [format(number * 2654435761 % 2**32, "032b").translate({48: "a", 49: "b"}) * 7 for number in range(10_000)]
    with pytest.raises(TooMuchWork):
        for text in texts:
            pattern.fullmatch(text)


def test_what_was_found_before_costs_no_work() -> None:
    pattern = compile("orders-[a-z]+(-dlq)?", work_max=WORK_MAX // 1_000)
    assert all(pattern.fullmatch("orders-abc-dlq") for _ in range(10_000))


def test_what_is_kept_is_bounded() -> None:
    pattern = compile("(a|b)*a(a|b){12}c", work_max=10**9)
    for number in range(2_000):
        pattern.fullmatch(format(number * 2654435761 % 2**32, "032b").translate({48: "a", 49: "b"}))
        assert len(pattern._kept) <= KEPT_SETS_MAX and pattern._kept_states <= KEPT_STATES_MAX


def test_half_a_character_is_no_expression() -> None:
    with pytest.raises(ValueError, match="not Unicode"):
        compile("\ud800")
