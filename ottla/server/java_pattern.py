"""Java's regular expressions in a rule for names are translated to Python's that match the same.

What has no counterpart is rejected with its name.

Most patterns are valid in both dialects, and most of these mean the same. Where they differ, Python would silently give a
client another name, and entries that deny the right name would not apply:

    .            no line terminator; Java has five of them
    $ \\Z \\z      \\z is the end, the others also stand before the last line terminator
    \\d \\w \\s \\b  ASCII
    \\h \\v \\R     kinds of blanks and line terminators
    \\p{Alpha}    and the other classes of POSIX, in ASCII; those of Unicode are refused
    (?<name>..)  a group with a name, \\k<name> refers to it
    (?i) (?s)    hold from there to the end of the group; other flags are refused
    [a[b]] [a&&b]  unions and intersections are refused
"""

from __future__ import annotations

import re

#: The time for a name may grow with a power of its length, and it is spent at once: `CN=(.*?),OU=(.*?),O=(.*?)` tries each
#: comma for each group. A certificate's subject has some hundred characters; the bounds of RFC 5280 for a common name and a
#: unit are 64 each.
NAME_LENGTH_MAX = 1_024

_TERMINATORS = r"\n\r\x85\u2028\u2029"
_BLANKS = r" \t\xa0\u1680\u180e\u2000-\u200a\u202f\u205f\u3000"
_VERTICAL = r"\n\x0b\f\r\x85\u2028\u2029"
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
#: Translations outside of a set, and inside.
_ANYWHERE = {each: f"\\{each}" for each in "dDwWsS"}
_IN_TEXT = _ANYWHERE | {
    "b": r"(?u:\b)", "B": r"(?u:\B)", "A": r"\A", "z": r"\Z", "Z": _END, "h": f"[{_BLANKS}]", "H": f"[^{_BLANKS}]", "v": f"[{_VERTICAL}]",
    "V": f"[^{_VERTICAL}]", "R": rf"(?:\r\n|[{_VERTICAL}])",
}  # fmt: skip
_IN_SET = _ANYWHERE | {"h": _BLANKS, "v": _VERTICAL}
_CHARACTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "ASCII": r"\x00-\x7f", "Alpha": "a-zA-Z", "Digit": "0-9", "Alnum": "a-zA-Z0-9",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~", "Blank": r" \t", "Cntrl": r"\x00-\x1f\x7f", "XDigit": "0-9a-fA-F",
    "Space": r" \t\n\x0b\f\r",
}  # fmt: skip
_CODE = re.compile(r"x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|0([0-3]?[0-7]{1,2})")
_CLASS = re.compile(r"([pP])\{(\w+)\}")
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_FLAGS = re.compile(r"\(\?([a-zA-Z-]+)(\)|:)")
_PLAIN_GROUP = re.compile(r"\(\?(?::|=|!|<=|<!|>)")
_REPEATED = re.compile(r"(?:[*+?]|\{\d{1,9}(?:,\d{0,9})?\})[?+]?")
_BACK = re.compile(r"k<(\w+)>")


def compiled(pattern: str) -> re.Pattern[str]:
    """Raise ValueError with the reason."""
    try:
        return re.compile(_Translation(pattern).all(), re.ASCII)
    except (re.error, OverflowError, RecursionError) as fault:
        raise ValueError(str(fault)) from None


def check_length(name: str, rules: str) -> None:
    """Raise ValueError for a name that is too long for a pattern of these `rules`."""
    if len(name) > NAME_LENGTH_MAX:
        raise ValueError(f"a name of {len(name)} characters, {rules} takes {NAME_LENGTH_MAX}: {name[:100]}...")


class _Refused(ValueError):
    """Reject what Java has, or rejects too, and what has no counterpart."""


class _Translation:
    """Translates one pattern, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._found: list[str] = []
        self._groups = 0
        #: For each open group: whether `.` matches line terminators, and the flags that were set inside.
        self._open: list[tuple[bool, list[str]]] = []
        self._dot_all = False
        self._flags: list[str] = []

    def all(self) -> str:
        while self._at < len(self._pattern):
            self._found.append(self._next())
        if self._open:
            raise _Refused("a group is not closed")
        return "".join(self._found) + ")" * len(self._flags)

    def _taken(self, form: re.Pattern[str]) -> re.Match[str] | None:
        match = form.match(self._pattern, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _one(self) -> str:
        if self._at == len(self._pattern):
            raise _Refused("it ends within an escape or a set")
        self._at += 1
        return self._pattern[self._at - 1]

    def _next(self) -> str:
        if repeated := self._taken(_REPEATED):
            return repeated[0]
        if self._pattern[self._at] == "(":
            return self._group()
        match self._one():
            case ")":
                if not self._open:
                    raise _Refused("a ) closes nothing")
                closing = ")" * len(self._flags)
                self._dot_all, self._flags = self._open.pop()
                return closing + ")"
            case "|":
                return ")" * len(self._flags) + "|" + "".join(self._flags)
            case ".":
                return r"[\s\S]" if self._dot_all else f"[^{_TERMINATORS}]"
            case "^":
                return "^"
            case "$":
                return _END
            case "[":
                return self._set()
            case "\\":
                return self._escape()
            case "{":
                raise _Refused("a { that repeats nothing")
            case other:
                return re.escape(other)

    def _group(self) -> str:
        if flags := self._taken(_FLAGS):
            if set(flags[1]) - set("is"):
                raise _Refused(f"the flags {flags[1]}")
            opening = "(?i:" if "i" in flags[1] else "(?:"
            if flags[2] == ":":
                self._open.append((self._dot_all, self._flags))
                self._flags = []
            else:
                self._flags = [*self._flags, opening]
            self._dot_all = self._dot_all or "s" in flags[1]
            return opening
        named, plain = self._taken(_NAMED), None
        if named is None:
            plain = self._taken(_PLAIN_GROUP)
            if plain is None:
                self._at += 1
                if self._pattern.startswith("?", self._at):
                    raise _Refused("a group that begins with (?")
        self._open.append((self._dot_all, self._flags))
        self._flags = []
        if plain is not None:
            return plain[0]
        self._groups += 1
        return "(" if named is None else f"(?P<{named[1]}>"

    def _escape(self) -> str:
        if back := self._taken(_BACK):
            return f"(?P={back[1]})"
        character = self._character()
        if character is not None:
            return re.escape(character)
        if posix := self._class():
            return posix
        kind = self._one()
        if kind == "Q":
            end = self._pattern.find("\\E", self._at)
            quoted = self._pattern[self._at :] if end < 0 else self._pattern[self._at : end]
            self._at = len(self._pattern) if end < 0 else end + 2
            return "".join(map(re.escape, quoted))
        if kind in "123456789":
            # As many digits belong to a reference as there are groups before it; further digits are text.
            number = int(kind)
            while self._at < len(self._pattern) and self._pattern[self._at] in "0123456789":
                longer = number * 10 + int(self._pattern[self._at])
                if longer > self._groups:
                    break
                number, self._at = longer, self._at + 1
            if number > self._groups:
                raise _Refused(f"\\{number} refers to no group")
            return f"(?:\\{number})"
        if kind in _IN_TEXT:
            return _IN_TEXT[kind]
        raise _Refused(f"\\{kind}")

    def _character(self) -> str | None:
        """Return the single character that an escape stands for, or None for another kind of escape."""
        if code := self._taken(_CODE):
            digits = code[1] or code[2] or code[3]
            number = int(digits, 16) if digits else int(code[4], 8)
            if number > 0x10FFFF:
                raise _Refused(f"\\{code[0]}")
            return chr(number)
        following = self._pattern[self._at : self._at + 1]
        if following in _CHARACTERS or (following and not (following.isascii() and following.isalnum())):
            self._at += 1
            return _CHARACTERS.get(following, following)
        return None

    def _class(self, *, in_set: bool = False) -> str | None:
        match = self._taken(_CLASS)
        if match is None:
            return None
        if match[2] not in _POSIX or (in_set and match[1] == "P"):
            raise _Refused(f"\\{match[0]}")
        inner = _POSIX[match[2]]
        return inner if in_set else f"[{'^' if match[1] == 'P' else ''}{inner}]"

    def _set(self) -> str:
        found = ["[", self._one() if self._pattern.startswith("^", self._at) else ""]
        if self._pattern.startswith("]", self._at):
            raise _Refused("a set that begins with ]")
        while not self._pattern.startswith("]", self._at):
            low = self._of_set()
            if (
                len(low) > 1
                or not self._pattern.startswith("-", self._at)
                or self._pattern[self._at + 1 :][:1] in ("", "]")
            ):
                found.append(low if len(low) > 1 else re.escape(low))
                continue
            self._at += 1
            high = self._of_set()
            if len(high) > 1:
                raise _Refused("a range that ends with a class")
            found.append(f"{re.escape(low)}-{re.escape(high)}")
        self._at += 1
        return "".join(found) + "]"

    def _of_set(self) -> str:
        """Read a character or a class. A class has more than one character."""
        if self._pattern.startswith(("[", "&&"), self._at):
            raise _Refused("a set within a set, or &&")
        each = self._one()
        if each != "\\":
            return each
        character = self._character()
        if character is not None:
            return character
        if posix := self._class(in_set=True):
            return posix
        kind = self._one()
        if kind not in _IN_SET:
            raise _Refused(f"\\{kind} cannot stand in a set")
        return _IN_SET[kind]
