"""The matcher of a plain install compared with google-re2: the same verdict on every expression, and the same matches.

Two cases are not compared: a group name that occurs twice, which RE2/J (and so Kafka) rejects and google-re2 accepts when it
captures nothing; and `\\B` beside characters beyond ASCII, where google-re2 looks between the bytes of one character.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import re2

from ottla.server import extras
from ottla.server.regex import automaton, charset, syntax
from ottla.server.regex.automaton import compile

assert re2  # otherwise the matcher is compared with itself

PARTS = (
    *"abA-._1 \n", ".", "\\d", "\\D", "\\w", "\\W", "\\s", "\\S", "[a-c]", "[^a]", "[]a]", "[^]b-]", "[a-\\x63]", "[\\d-]", "[b-a]",
    "[[:alpha:]]", "[[:^digit:]_]", "[[:no:]]", "\\b", "^", "$", "\\A", "\\z", "\\pL", "\\p{Lu}", "\\PN", "\\p{Greek}", "\\p{^Latin}",
    "\\p{Common}", "\\p{No_script}", "\\Qa.b*\\E", "\\Q", "\\x41", "\\x{62}", "\\x{110000}", "\\.", "\\101", "\\n", "\\1", "\\q", "\\",
    "(?i)", "(?s)", "(?m)", "(?-s)", "(?i-s:", "(?U)", "(?", "(?=", "(?:", "(?<n>", "(", "(", "(", ")", ")", ")", "|", "|",
    "*", "+", "?", "*?", "{2}", "{1,3}", "{2,1}", "{2,}", "{0}", "{,2}", "{1001}", "{40}", "{", "}", "[", "]", "k", "S", "é",
    "(?i)a", "(?i:kb)", "(?i)[a-k]+", "a{1,3}", "[a-c]{2,4}", "(a|b){2,3}", "\\w\\b", "a$", "(?m)^", "b-?\\b",
)  # fmt: skip
LETTERS = "abAcB-._1 \nkKsSéÉγ\u212a"


def differences(seed: int, expressions: int = 600) -> list[str]:
    rng = random.Random(seed)
    found = []
    for _ in range(expressions):
        expression = "".join(rng.choice(PARTS) for _ in range(rng.randint(1, 8)))
        if expression.count("(?<n>") > 1:
            continue
        texts = ["".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 6))) for _ in range(8)]
        theirs = _answers(extras.compiled, expression, texts)
        ours = _answers(compile, expression, texts)
        if ours != theirs:
            found.append(f"{expression!r} and {texts}: {ours}, in RE2 {theirs}")
    return found


def _answers(make: Callable[[str], Any], expression: str, texts: list[str]) -> list[tuple[bool, bool]] | None:
    try:
        pattern = make(expression)
    except ValueError:
        return None
    return [(pattern.fullmatch(t) is not None, pattern.search(t) is not None) for t in texts]


@pytest.mark.parametrize("seed", range(5))
def test_every_expression_has_the_verdict_and_the_matches_of_re2(seed: int) -> None:
    assert not differences(seed)


def forgets_the_character_before(self: automaton.Matcher, states: tuple[int, ...], before: int) -> automaton.StateSet:
    """A kept set of states that was reached behind a letter is taken for one behind a hyphen."""
    return self._kept.setdefault((states, 0), automaton.StateSet(states, before))


MUTANTS = {
    "kept sets are distinguished by their states alone": (automaton.Matcher, "_set", forgets_the_character_before),
    "(?i) takes no other case": (charset, "_forms", lambda character: (character,)),
    "a repetition of a range is one of its first number": (syntax, "_COUNTED", re.compile(r"\{(\d+)(?:,\d*)?()()\}")),
}  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_comparison_sees_a_matcher_with_a_mistake(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MUTANTS[mutant])
    assert any(differences(seed) for seed in range(5))
