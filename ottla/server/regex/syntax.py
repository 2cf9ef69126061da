"""Reads regular expressions in the syntax of RE2/J, which Apache Kafka uses: https://github.com/google/re2/wiki/Syntax.

The result is in postfix order. Each part of the expression is one slice of the result, so a counted repetition copies the
slice. Nothing is recursive, however deep the parentheses are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal, TypeAlias

from ottla.server.regex.charset import ANY, CATEGORIES, NOT_NEWLINE, PERL, POSIX, SCRIPTS, CharSet, Part

#: The most repetitions of a counted repetition, multiplied by those inside of it: RE2's kMaxRepeat.
TIMES_MAX = 1_000
#: The most operators and operands in the result: twice the characters of the longest expression without repetitions that a
#: group may have.
SIZE_MAX = 1 << 16


class Assertion(Enum):
    BEGIN_TEXT = "\\A"
    END_TEXT = "\\z"
    BEGIN_LINE = "^"
    END_LINE = "$"
    WORD_BOUNDARY = "\\b"
    NO_WORD_BOUNDARY = "\\B"


#: The operators that take one or two operands before them.
Operator: TypeAlias = Literal["empty", "cat", "alt", "*", "+", "?"]
Item: TypeAlias = CharSet | Assertion | Operator

_REPETITIONS: dict[str, Operator] = {"*": "*", "+": "+", "?": "?"}
_COUNTED = re.compile(r"\{(0|[1-9][0-9]*)(?:(,)(0|[1-9][0-9]*)?)?\}", re.ASCII)
_FLAGS = re.compile(r"\(\?([imsU]*)(-[imsU]+)?([:)])", re.ASCII)
_NAMED = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>", re.ASCII)
_HEXADECIMAL = re.compile(r"x(?:\{([0-9a-fA-F]+)\}|([0-9a-fA-F]{2}))", re.ASCII)
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}", re.ASCII)
_CONTROL = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_ASSERTIONS = {f"\\{a.value[1]}": a for a in Assertion if len(a.value) == 2}


class InvalidExpression(ValueError):
    """The expression is not valid, or too large."""


@dataclass(frozen=True, slots=True)
class Flags:
    ignores_case: bool = False
    is_multiline: bool = False
    dot_takes_newline: bool = False


@dataclass(slots=True)
class OpenGroup:
    """An open parenthesis, or the whole expression."""

    #: The flags of the parser at the beginning of the group.
    flags: Flags
    #: The position in the result at which the group begins.
    start: int
    #: 2 if the next operand needs a "cat" operator.
    operands: int = 0
    has_alternative: bool = False
    #: The position in the result at which its last operand begins: a repetition applies to it.
    last: int = 0
    #: The product of the last operand's counted repetitions, and the largest product of all operands.
    times: int = 1
    times_max: int = 1


class Parser:
    """Reads one expression; `parse` returns the result in postfix order."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._out: list[Item] = []
        self._flags = Flags()
        self._open = [OpenGroup(self._flags, 0)]
        self._names: set[str] = set()

    def parse(self) -> list[Item]:
        """Raise InvalidExpression."""
        text, after_repetition = self._text, False
        while self._at < len(text):
            character = text[self._at]
            counted = _COUNTED.match(text, self._at) if character == "{" else None
            is_repetition = character in "*+?" or counted is not None
            if is_repetition:
                if after_repetition:
                    raise InvalidExpression("invalid nested repetition operator")
                self._repeat(character, counted)
            elif character == "(":
                self._begin_group()
            elif character == ")":
                self._end_group()
            elif character == "|":
                self._alternative()
                self._at += 1
            elif character == "[":
                self._operand(self._class())
            elif character == "\\":
                self._escape()
            else:
                self._plain(character)
            after_repetition = is_repetition
        if len(self._open) > 1:
            raise InvalidExpression("missing closing )")
        self._alternative()
        return self._out

    def _plain(self, character: str) -> None:
        self._at += 1
        flags = self._flags
        if character == ".":
            self._operand(ANY if flags.dot_takes_newline else NOT_NEWLINE)
        elif character == "^":
            self._operand(Assertion.BEGIN_LINE if flags.is_multiline else Assertion.BEGIN_TEXT)
        elif character == "$":
            self._operand(Assertion.END_LINE if flags.is_multiline else Assertion.END_TEXT)
        else:
            self._literal(character)

    def _literal(self, character: str) -> None:
        self._operand(self._set(Part("ranges", character * 2)))

    def _set(self, *parts: Part, is_negated: bool = False) -> CharSet:
        return CharSet(parts, is_negated, self._flags.ignores_case)

    def _operand(self, item: Item) -> None:
        self._begin_operand(self._open[-1])
        self._append(item)

    def _begin_operand(self, group: OpenGroup) -> None:
        if group.operands == 2:
            self._append("cat")
            group.operands = 1
        group.operands += 1
        group.last, group.times = len(self._out), 1

    def _append(self, *items: Item) -> None:
        if len(self._out) + len(items) > SIZE_MAX:
            raise InvalidExpression("expression too large")
        self._out += items

    def _alternative(self) -> None:
        """End an alternative: the group's former alternatives are joined with it."""
        group = self._open[-1]
        if group.operands != 1:
            self._append("cat" if group.operands else "empty")
        if group.has_alternative:
            self._append("alt")
        group.has_alternative, group.operands = True, 0

    def _begin_group(self) -> None:
        flags = self._flags
        if not self._text.startswith("(?", self._at):
            self._at += 1
        elif named := _NAMED.match(self._text, self._at):
            if named[1] in self._names:
                raise InvalidExpression(f"duplicate capture group name: {named[1]}")
            self._names.add(named[1])
            self._at = named.end()
        elif change := _FLAGS.match(self._text, self._at):
            self._at = change.end()
            self._flags = _changed(_changed(flags, change[1], True), change[2] or "", False)
            if change[3] == ")":
                return
        else:
            raise InvalidExpression(f"invalid or unsupported Perl syntax: {self._text[self._at : self._at + 4]}")
        self._begin_operand(self._open[-1])
        self._open.append(OpenGroup(flags, len(self._out)))

    def _end_group(self) -> None:
        if len(self._open) == 1:
            raise InvalidExpression("unexpected )")
        self._at += 1
        self._alternative()
        group = self._open.pop()
        self._flags = group.flags
        outer = self._open[-1]
        outer.times = group.times_max
        outer.times_max = max(outer.times_max, outer.times)

    def _repeat(self, character: str, counted: re.Match[str] | None) -> None:
        begin = self._at
        self._at = begin + 1 if counted is None else counted.end()
        if self._text.startswith("?", self._at):
            self._at += 1  # for the shortest match first, which does not matter here
        group = self._open[-1]
        if not group.operands:
            raise InvalidExpression(f"missing argument to repetition operator: {self._text[begin : self._at]}")
        if counted is None:
            self._append(_REPETITIONS[character])
            return
        least = _number(counted[1])
        most = least if counted[2] is None else None if counted[3] is None else _number(counted[3])
        group.times *= max(least, most or 0, 1)
        group.times_max = max(group.times_max, group.times)
        if group.times > TIMES_MAX or (most is not None and most < least):
            raise InvalidExpression(f"invalid repetition size: {counted[0]}")
        self._copy(group.last, least, most)

    def _copy(self, start: int, least: int, most: int | None) -> None:
        piece = self._out[start:]
        if (len(piece) + 2) * max(least, most or 0, 1) + start > SIZE_MAX:
            raise InvalidExpression("expression too large")
        del self._out[start:]
        pieces: list[list[Item]] = [piece] * least
        if most is None:
            pieces = [*pieces[1:], [*piece, "+"]] if least else [[*piece, "*"]]
        else:
            pieces += [[*piece, "?"]] * (most - least)
        if not pieces:
            pieces = [["empty"]]
        for number, each in enumerate(pieces):
            self._append(*each)
            if number:
                self._append("cat")

    def _escape(self) -> None:
        text, begin = self._text, self._at
        two = text[begin : begin + 2]
        if two in _ASSERTIONS:
            self._at += 2
            self._operand(_ASSERTIONS[two])
        elif two == "\\Q":
            literal, _, _ = text[begin + 2 :].partition("\\E")
            self._at = min(begin + 2 + len(literal) + 2, len(text))
            for character in literal:
                self._literal(character)
        elif (part := self._group_escape()) is not None:
            self._operand(self._set(part))
        else:
            self._literal(self._escaped())

    def _group_escape(self) -> Part | None:
        """Read `\\d`, `\\pL` and the like, if there is one here."""
        text, begin = self._text, self._at
        kind = text[begin + 1 : begin + 2]
        if text[begin] != "\\" or not kind:
            return None
        if kind.lower() in PERL:
            self._at += 2
            return Part("ranges", PERL[kind.lower()], kind.isupper())
        if kind not in "pP":
            return None
        name, self._at = text[begin + 2 : begin + 3], begin + 3
        if name == "{":
            end = text.find("}", begin)
            if end < 0:
                raise InvalidExpression(f"invalid character class range: {text[begin : begin + 20]}")
            name, self._at = text[begin + 3 : end], end + 1
        bare = name.removeprefix("^")
        if bare != "Any" and bare not in CATEGORIES and bare not in SCRIPTS:
            raise InvalidExpression(f"invalid character class range: {text[begin : self._at][:40]}")
        return Part("group", bare, (kind == "P") != (bare != name))

    def _escaped(self) -> str:
        """Read an escape of one character. `self._at` is at the backslash before, and behind the escape afterwards."""
        text, begin = self._text, self._at + 1
        character = text[begin : begin + 1]
        if not character:
            raise InvalidExpression("trailing \\")
        if number := _HEXADECIMAL.match(text, begin):
            code = int(number[1] or number[2], 16)
            if code <= 0x10FFFF:
                self._at = number.end()
                return chr(code)
        elif number := _OCTAL.match(text, begin):
            self._at = number.end()
            return chr(int(number[0], 8))
        elif character in _CONTROL or (character.isascii() and not character.isalnum()):
            self._at = begin + 1
            return _CONTROL.get(character, character)
        raise InvalidExpression(f"invalid escape sequence: \\{character}")

    def _class(self) -> CharSet:
        text, begin = self._text, self._at
        self._at += 1
        is_negated = text.startswith("^", self._at)
        self._at += is_negated
        parts: list[Part] = []
        while not parts or not text.startswith("]", self._at):
            if self._at >= len(text):
                raise InvalidExpression(f"missing closing ]: {text[begin : begin + 20]}")
            parts.append(self._posix() or self._group_escape() or self._range())
        self._at += 1
        return self._set(*parts, is_negated=is_negated)

    def _posix(self) -> Part | None:
        end = self._text.find(":]", self._at + 2) if self._text.startswith("[:", self._at) else -1
        if end < 0:
            return None
        name = self._text[self._at + 2 : end]
        ends = POSIX.get(name.removeprefix("^"))
        if ends is None:
            raise InvalidExpression(f"invalid character class range: [:{name[:20]}:]")
        self._at = end + 2
        return Part("ranges", ends, name.startswith("^"))

    def _range(self) -> Part:
        begin = self._at
        first = last = self._class_character()
        if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
            self._at += 1
            last = self._class_character()
        if last < first:
            raise InvalidExpression(f"invalid character class range: {self._text[begin : self._at]}")
        return Part("ranges", first + last)

    def _class_character(self) -> str:
        if self._at >= len(self._text):
            raise InvalidExpression("missing closing ]")
        if self._text[self._at] == "\\":
            return self._escaped()
        self._at += 1
        return self._text[self._at - 1]


def _number(digits: str) -> int:
    """Return the number of a repetition. With more than eight digits it is a number that is too large in any case."""
    return int(digits[:9])


def _changed(flags: Flags, letters: str, value: bool) -> Flags:
    names = {"i": "ignores_case", "m": "is_multiline", "s": "dot_takes_newline"}
    return replace(flags, **{names[letter]: value for letter in letters if letter in names})
