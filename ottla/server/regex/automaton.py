"""Matches regular expressions in time linear in the text: `compile(expression).fullmatch(text)`.

The states of a nondeterministic automaton are followed all at once (Thompson, Programming Techniques: Regular expression search
algorithm, 1968). Each set of states that occurs is kept together with the sets that follow it, so most characters take one
lookup. A malicious expression has another set after each character. So the work is bounded too: `work_max` is the most states
that a compiled expression may visit in its life, at about 0.3 us each. Lookups in the kept sets do not count.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from ottla.server.regex.charset import ANY, CharSet, is_word
from ottla.server.regex.syntax import Assertion, InvalidExpression, Item, Parser

#: The default bound of work: about 0.3 s, so that an administrator's request may evaluate an expression on the event loop.
WORK_MAX = 1_000_000
#: The most kept sets, and the most states in all of them. Beyond that, all are forgotten.
KEPT_SETS_MAX = 4_096
KEPT_STATES_MAX = 1 << 18

_TEXT_END, _NEWLINE, _WORD, _OTHER = range(4)


class TooMuchWork(ValueError):
    """The expression needs more work for these texts than is allowed."""


@dataclass(slots=True, eq=False)
class StateSet:
    """A set of states after a character of the text. `before` is the kind of that character."""

    states: tuple[int, ...]
    before: int
    #: The set that follows, by the next character.
    following: dict[str, StateSet] = field(default_factory=dict)
    is_accepting: bool | None = None


class Program:
    """The automaton of one expression. State 0 ends the text."""

    def __init__(self, items: list[Item]) -> None:
        #: The condition of each state: the number of a set of characters, an assertion, or nothing.
        self.takes: list[int | Assertion | None] = [None]
        self.following: list[tuple[int, ...]] = [()]
        self.sets: list[CharSet] = []
        self.start = self._build(items)
        self.has_assertions = any(isinstance(item, Assertion) for item in items)

    def _state(self, takes: int | Assertion | None, *following: int) -> int:
        self.takes.append(takes)
        self.following.append(following)
        return len(self.takes) - 1

    def _build(self, items: list[Item]) -> int:
        numbers: dict[CharSet, int] = {}
        parts: list[tuple[int, int]] = []  # the first and the last state of each operand
        for item in items:
            match item:
                case "cat":
                    (second, last), (first, end) = parts.pop(), parts.pop()
                    self.following[end] = (second,)
                    parts.append((first, last))
                case "alt":
                    (second, end_2), (first, end_1) = parts.pop(), parts.pop()
                    end = self._state(None)
                    self.following[end_1] = self.following[end_2] = (end,)
                    parts.append((self._state(None, first, second), end))
                case "*" | "+" | "?":
                    first, last = parts.pop()
                    end = self._state(None)
                    again = self._state(None, first, end)
                    self.following[last] = (end if item == "?" else again,)
                    parts.append((first if item == "+" else again, end))
                case CharSet():
                    number = numbers.setdefault(item, len(numbers))
                    parts.append((self._state(number),) * 2)
                case Assertion():
                    parts.append((self._state(item),) * 2)
                case _:
                    parts.append((self._state(None),) * 2)
        self.sets = list(numbers)
        ((start, end),) = parts
        self.following[end] = (0,)
        return start


class Matcher:
    """A compiled expression. It belongs to one thread at a time."""

    def __init__(self, items: list[Item], work_max: int) -> None:
        self._items = items
        self._work_left = work_max
        self._kept: dict[tuple[tuple[int, ...], int], StateSet] = {}
        self._kept_states = 0
        self._sets_of: dict[str, frozenset[int]] = {}
        #: The states that follow each single state, by the kind of the character before it and by the next character.
        self._leads: dict[tuple[int, int, str], tuple[int, ...]] = {}
        self._kept_leads = 0

    @cached_property
    def _program(self) -> Program:
        return Program(self._items)  # not at compile time, because many expressions are only checked

    def fullmatch(self, text: str) -> Matcher | None:
        """Return a true value if the text matches as a whole, otherwise None.

        Raises:
            TooMuchWork: the expression, with this text, needs more work than is allowed.
        """
        current = self._set((self._program.start,), _TEXT_END)
        for character in text:
            found = current.following.get(character)
            if found is None:
                found = self._after(current, character)
            if not found.states:
                return None
            current = found
        if current.is_accepting is None:
            current.is_accepting = 0 in self._reached(current.states, current.before, _TEXT_END)
        return self if current.is_accepting else None

    def search(self, text: str) -> Matcher | None:
        """Return a true value if some part of the text matches, otherwise None. Raises as `fullmatch`."""
        return self._anywhere.fullmatch(text)

    @cached_property
    def _anywhere(self) -> Matcher:
        around: list[Item] = [ANY, "*"]
        return Matcher([*around, *self._items, "cat", *around, "cat"], self._work_left)

    def _after(self, current: StateSet, character: str) -> StateSet:
        kind = self._kind(character)
        led_to: set[int] = set()
        for state in current.states:
            led_to.update(self._leads_to(state, current.before, character, kind))
        self._spend(len(current.states))
        found = self._set(tuple(sorted(led_to)), kind)
        current.following[character] = found
        return found

    def _leads_to(self, state: int, before: int, character: str, kind: int) -> tuple[int, ...]:
        """Return the states after this character, if this is the only state before it."""
        key = state, before, character
        found = self._leads.get(key)
        if found is None:
            program, sets = self._program, self._taken_by(character)
            reached = self._reached((state,), before, kind)
            found = tuple({program.following[s][0] for s in reached if program.takes[s] in sets})
            self._kept_leads += len(found) + 1
            if self._kept_leads > KEPT_STATES_MAX:
                self._leads.clear()
                self._kept_leads = len(found) + 1
            self._leads[key] = found
        self._spend(len(found))
        return found

    def _taken_by(self, character: str) -> frozenset[int]:
        """Return the numbers of the sets of characters that contain the character."""
        found = self._sets_of.get(character)
        if found is None:
            if len(self._sets_of) >= KEPT_SETS_MAX:
                self._sets_of.clear()
            sets = self._program.sets
            self._spend(len(sets))
            found = self._sets_of[character] = frozenset(n for n, each in enumerate(sets) if each.has(character))
        return found

    def _set(self, states: tuple[int, ...], before: int) -> StateSet:
        found = self._kept.get((states, before))
        if found is None:
            self._kept_states += len(states) + 1
            if len(self._kept) >= KEPT_SETS_MAX or self._kept_states > KEPT_STATES_MAX:
                for each in self._kept.values():
                    each.following.clear()  # they refer to each other
                self._kept.clear()
                self._kept_states = len(states) + 1
            found = self._kept[states, before] = StateSet(states, before)
        return found

    def _reached(self, states: tuple[int, ...], before: int, after: int) -> set[int]:
        """Return the states that are reached from these without a character, between characters of these two kinds."""
        takes, following = self._program.takes, self._program.following
        reached, todo = set(states), list(states)
        while todo:
            state = todo.pop()
            taken = takes[state]
            if isinstance(taken, int) or (taken is not None and not _holds(taken, before, after)):
                continue
            for each in following[state]:
                if each not in reached:
                    reached.add(each)
                    todo.append(each)
        self._spend(len(reached))
        return reached

    def _kind(self, character: str) -> int:
        if not self._program.has_assertions:
            return _OTHER
        return _NEWLINE if character == "\n" else _WORD if is_word(character) else _OTHER

    def _spend(self, states: int) -> None:
        self._work_left -= states
        if self._work_left < 0:
            raise TooMuchWork("it needs too much work for these texts")


def _holds(assertion: Assertion, before: int, after: int) -> bool:
    match assertion:
        case Assertion.BEGIN_TEXT:
            return before == _TEXT_END
        case Assertion.END_TEXT:
            return after == _TEXT_END
        case Assertion.BEGIN_LINE:
            return before in (_TEXT_END, _NEWLINE)
        case Assertion.END_LINE:
            return after in (_TEXT_END, _NEWLINE)
        case Assertion.WORD_BOUNDARY:
            return (before == _WORD) != (after == _WORD)
        case Assertion.NO_WORD_BOUNDARY:
            return (before == _WORD) == (after == _WORD)


def compile(expression: str, work_max: int = WORK_MAX) -> Matcher:
    """Compile an expression. `work_max` is the most states that all its matches together may visit, at about 0.3 us each.

    Raises:
        InvalidExpression (a ValueError): it is not valid, or too large.
    """
    try:
        expression.encode()
    except UnicodeEncodeError as error:
        raise InvalidExpression("it is not Unicode") from error
    return Matcher(Parser(expression).parse(), work_max)
