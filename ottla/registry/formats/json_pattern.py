r"""Regular expressions of JSON schemas: whether one is valid, and whether it matches a property's name.

JSON Schema prescribes ECMA-262's dialect, but Confluent's registry uses Java's. An expression that is valid in one of them is
accepted. RE2 (`ottla.server.extras`) matches names in time linear in their length, after an expression was translated to its
syntax. An expression is not evaluated if RE2 lacks a part of it (lookahead and lookbehind, back references, possessive
repetitions), or if the dialects differ about it.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ottla.registry.formats.parsed import InvalidSchema
from ottla.server.extras import Pattern, compiled

_GROUP = re.compile(r"\((?:\?(?:(:)|(=|!|<=|<!|>)|<([A-Za-z_$][A-Za-z0-9_$]*)>|([a-zA-Z]*(?:-[a-zA-Z]+)?)([:)])))?")
_COUNTED = re.compile(r"\{(\d+)(?:(,)(\d*))?\}", re.ASCII)
_RANGE = re.compile(r"([a-zA-Z0-9])-([a-zA-Z0-9])", re.ASCII)
_CODE = re.compile(
    r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|u\{([0-9a-fA-F]{1,6})\}|c([A-Za-z])|0(?![0-9])"
)
_PROPERTY = re.compile(r"[pP](?:\{(?:Is|(?:sc|gc|script|Script|General_Category)=)?([A-Za-z_]+)\}|([A-Z]))")
_JAVA_FLAGS, _RE2_FLAGS = frozenset("idmsuxU-"), frozenset("ims-")
#: The meaning of letters after a backslash, as the content of a class.
_CLASSES = {
    "s": r"\t-\r ",
    "h": r" \t\x{a0}\x{1680}\x{180e}\x{2000}-\x{200a}\x{202f}\x{205f}\x{3000}",
    "v": r"\n-\r\x{85}\x{2028}\x{2029}",
}
_POSIX = frozenset(
    (
        "Lower",
        "Upper",
        "ASCII",
        "Alpha",
        "Digit",
        "Alnum",
        "Punct",
        "Graph",
        "Print",
        "Blank",
        "Cntrl",
        "XDigit",
        "Space",
    )
)
_LONG_NAMES = {
    "Letter": "L", "Uppercase_Letter": "Lu", "Lowercase_Letter": "Ll", "Mark": "M", "Number": "N", "Decimal_Number": "Nd",
    "Punctuation": "P", "Symbol": "S", "Separator": "Z",
}  # fmt: skip
#: RE2's bound of a counted repetition.
REPEATED_MAX = 1_000
#: A checking process keeps this many compiled expressions: an object's patterns are matched with each of its properties.
KEPT_MAX = 64


def check_pattern(text: str) -> None:
    """Check that an expression is valid in Java's or ECMA-262's dialect.

    Raises:
        InvalidSchema: it is valid in neither.
    """
    _Reader(text).read()


def matches(text: str, name: str) -> bool | None:
    """Return whether an expression matches a name; None if it cannot be evaluated."""
    found = _compiled(text)
    try:
        return None if found is None else found.fullmatch(name) is not None
    except ValueError:  # the matching needs too much work
        return None


@lru_cache(maxsize=KEPT_MAX)
def _compiled(text: str) -> Pattern | None:
    try:
        translated = _Reader(text).read()
        return None if translated is None else compiled(f"(?s:.*)(?:{translated})(?s:.*)")
    except (InvalidSchema, ValueError):
        return None


class _Reader:
    """Reads an expression once from its first character to its last."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._out: list[str] = []
        self._is_readable = True

    def read(self) -> str | None:
        """Return the expression in RE2's syntax, or None if it has parts that RE2 lacks.

        Raises:
            InvalidSchema: it is valid in no dialect.
        """
        text, can_repeat = self._text, False
        while self._at < len(text):
            character = text[self._at]
            if character == "\\":
                self._escape()
            elif character == "[":
                self._class()
            elif character == "(":
                can_repeat = self._group()
                continue
            elif character in "*+?{" and self._repetition(character, can_repeat):
                continue
            else:
                if character == ")":
                    self._depth -= 1
                    if self._depth < 0:
                        raise self._fault("an unmatched )")
                self._take(1)
            can_repeat = character != "|"
        if self._depth:
            raise self._fault("a group without an end")
        return "".join(self._out) if self._is_readable else None

    def _fault(self, what: str) -> InvalidSchema:
        return InvalidSchema(f"'{self._text[:200]}' is no regular expression: {what} at {self._at}")

    def _take(self, count: int, translated: str | None = None) -> None:
        """Take some characters of the expression, unchanged or with their translation for RE2."""
        part = self._text[self._at : self._at + count]
        self._out.append(part if translated is None else translated)
        self._at += count

    def _unreadable(self, count: int) -> None:
        self._is_readable = False
        self._at += count

    def _group(self) -> bool:
        """Read the beginning of a group. Return whether a repetition may follow."""
        found = _GROUP.match(self._text, self._at)
        assert found is not None
        plain, looking, name, flags, end = found.groups()
        if found.end() == self._at + 1 and self._text[found.end() : found.end() + 1] == "?":
            raise self._fault("an unknown group")
        if end == ")" and not flags:
            raise self._fault("an unknown group")
        if flags and not _JAVA_FLAGS.issuperset(flags):
            raise self._fault("unknown flags")
        self._depth += end != ")"
        if looking or (flags and not _RE2_FLAGS.issuperset(flags)):
            self._unreadable(len(found[0]))
        else:
            self._take(len(found[0]), "(" if name or plain or not end else None)
        return end == ")"

    def _repetition(self, character: str, can_repeat: bool) -> bool:
        """Read a repetition with its suffix. Return whether the character begins one."""
        counted = _COUNTED.match(self._text, self._at) if character == "{" else None
        if character == "{":
            if counted is None or not can_repeat:
                return False
            least, comma, most = counted.groups()
            if comma and most and int(most[:100]) < int(least[:100]):
                raise self._fault("an illegal repetition range")
        elif not can_repeat:
            raise self._fault(f"a dangling {character}")
        if counted is not None and max(int(row[:100]) for row in (counted[1], counted[3] or "0")) > REPEATED_MAX:
            self._is_readable = False
        self._take(1 if counted is None else len(counted[0]))
        following = self._text[self._at : self._at + 1]
        if following == "?":
            self._take(1)
        elif following == "+":
            self._unreadable(1)
        if character != "{" and self._text[self._at : self._at + 1] in ("*", "+", "?"):
            raise self._fault("a dangling repetition")
        return True

    def _escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following == "Q":
            end = self._text.find("\\E", self._at)
            self._unreadable((len(self._text) if end < 0 else end + 2) - self._at)
        elif following in _CLASSES or following.lower() in _CLASSES:
            sign = "^" if following.isupper() else ""
            self._take(2, f"[{sign}{_CLASSES[following.lower()]}]")
        elif following == "Z":
            self._take(2, r"\n?\z")
        elif following in ("d", "D", "w", "W", "b", "B", "A", "z"):
            self._take(2)
        else:
            self._character(is_in_class=False)

    def _character(self, *, is_in_class: bool) -> None:
        """Read a backslash and what belongs to it: a character or a property."""
        following = self._text[self._at + 1 : self._at + 2]
        if not following:
            raise self._fault("a backslash without a character")
        code = _CODE.match(self._text, self._at + 1)
        found = _PROPERTY.match(self._text, self._at + 1)
        if code is not None:
            digits = next((each for each in code.groups()[:4] if each), "0")
            number = ord(code[5].upper()) ^ 64 if code[5] else int(digits, 16)
            self._take(1 + len(code[0]), f"\\x{{{number:x}}}")
        elif found is not None:
            name = found[1] or found[2]
            sign = "^" if found[0][0] == "P" else ""
            made = f"[:{sign}{name.lower()}:]"
            if name in _POSIX:
                self._take(1 + len(found[0]), made if is_in_class else f"[{made}]")
            else:
                self._take(1 + len(found[0]), f"\\{found[0][0]}{{{_LONG_NAMES.get(name, name)}}}")
        elif following in "nrtfa":
            self._take(2)
        elif following == "e":
            self._take(2, r"\x1b")
        elif following in "123456789kGRXNpPxuc0":
            self._unreadable(2)
        else:
            self._take(2, re.escape(following))

    def _class(self) -> None:
        start = self._at
        self._take(1)
        if self._text[self._at : self._at + 1] == "^":
            self._take(1)
        if self._text[self._at : self._at + 1] == "]":  # an empty class in ECMA-262, but a member of the class in Java
            self._is_readable = False
        while (character := self._text[self._at : self._at + 1]) != "]":
            found = _RANGE.match(self._text, self._at)
            if not character:
                self._at = start
                raise self._fault("a class without an end")
            if found is not None and found[1] > found[2]:
                raise self._fault("an illegal character range")
            if character == "\\":
                self._class_escape()
            elif character == "[" or self._text.startswith("&&", self._at):  # only Java has classes within classes
                self._unreadable(1)
            else:
                self._take(1 if found is None else 3)
        self._take(1)

    def _class_escape(self) -> None:
        following = self._text[self._at + 1 : self._at + 2]
        if following in _CLASSES:
            self._take(2, _CLASSES[following])
        elif following in ("d", "D", "w", "W"):
            self._take(2)
        elif following == "b":
            self._take(2, r"\x08")
        elif following in ("S", "H", "V", "Q"):
            self._unreadable(2)
        else:
            self._character(is_in_class=True)
