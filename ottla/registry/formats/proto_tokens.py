"""The tokens of a .proto text. Blanks and comments between them never have a meaning.

Reference: the language's specification, and what protoc's tokenizer accepts and rejects.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.registry.formats.parsed import InvalidSchema

_PATTERN = re.compile(
    r"""(?P<blank>[ \t\n\r\v\f]+|//[^\n]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/)
    |(?P<word>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<float>(?:(?:0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?:0|[1-9][0-9]*)[eE][+-]?[0-9]+)
    |(?P<int>0[xX][0-9a-fA-F]+|0[0-7]+(?![0-9])|[1-9][0-9]*|0(?![0-9xX]))
    |(?P<string>"(?:[^"\\\n\0]|\\[^\n\0])*"|'(?:[^'\\\n\0]|\\[^\n\0])*')
    |(?P<sign>[{}\[\]()<>=;,.:/+-])""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92, "?": 63, "'": 39, '"': 34}


class ProtoToken(NamedTuple):
    """A token, whose `kind` is word, int, float, string, sign or end."""

    kind: str
    text: str
    at: int


def tokens_of(text: str) -> list[ProtoToken]:
    """Return the tokens of a text, and one of kind `end`.

    Raises:
        InvalidSchema: a character belongs to no token.
    """
    found: list[ProtoToken] = []
    at = 1 if text.startswith("\ufeff") else 0
    while at < len(text):
        match = _PATTERN.match(text, at)
        if match is None:
            raise syntax_error(text, at, _what_is_wrong(text, at))
        kind = str(match.lastgroup)
        if kind != "blank":
            if kind == "word" and found and found[-1].kind in ("int", "float") and _end(found[-1]) == at:
                raise syntax_error(text, at, "a number and a word need a blank between them")
            if kind in ("int", "float") and found and found[-1].kind in ("int", "float") and _end(found[-1]) == at:
                raise syntax_error(text, at, f"'{found[-1].text}{match.group()}' is no number")
            found.append(ProtoToken(kind, match.group(), at))
        at = match.end()
    return [*found, ProtoToken("end", "", len(text))]


def _end(token: ProtoToken) -> int:
    return token.at + len(token.text)


def _what_is_wrong(text: str, at: int) -> str:
    if text.startswith("/*", at):
        return "the comment has no end, or another one within it"
    if text[at] in "\"'":
        return "the string has no end in its line"
    return "wrong number" if text[at].isdigit() else f"unexpected character {text[at]!r}"


def syntax_error(text: str, at: int, reason: str) -> InvalidSchema:
    line = text.count("\n", 0, at) + 1
    return InvalidSchema(f"Syntax error in :{line}:{at - text.rfind(chr(10), 0, at)}: {reason}")


def integer(text: str) -> int:
    """Return the value of a token of the kind int: decimal, octal (010 is 8) or hexadecimal."""
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text, 8) if text.startswith("0") else _decimal(text)


def _decimal(text: str) -> int:
    # No place allows more than 64 bits, and converting thousands of digits takes time with their square.
    return int(text) if len(text) <= 20 else 1 << 64


def unescaped(literal: str) -> bytes:
    """Return the bytes of a string literal with its quotes.

    Raises:
        ValueError: an escape is wrong.
    """
    made, at = bytearray(), 1
    end = len(literal) - 1
    for match in _ESCAPE.finditer(literal, 1, end):
        made += literal[at : match.start()].encode("utf-8", "surrogatepass")
        octal, hexadecimal, short, long, other = match.groups()
        if octal is not None:
            made.append(int(octal, 8) & 0xFF)
        elif hexadecimal is not None:
            made.append(int(hexadecimal, 16))
        elif other is not None:
            if other not in _ESCAPED:
                raise ValueError(f"wrong escape \\{other}")
            made.append(_ESCAPED[other])
        else:
            code = int(short or long, 16)
            if code > 0x10FFFF:
                raise ValueError(f"no character has the number {code:#x}")
            made += chr(code).encode("utf-8", "surrogatepass")
        at = match.end()
    return _PAIR.sub(_paired, bytes(made + literal[at:end].encode("utf-8", "surrogatepass")))


#: The two halves of a character, as in \ud83d\ude00.
_PAIR = re.compile(rb"\xed[\xa0-\xaf][\x80-\xbf]\xed[\xb0-\xbf][\x80-\xbf]")


def _paired(match: re.Match[bytes]) -> bytes:
    return match.group().decode("utf-8", "surrogatepass").encode("utf-16", "surrogatepass").decode("utf-16").encode()


#: Characters that Confluent's registry prints with an escape.
_PRINTED = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 39: "\\'", 34: '\\"'}


def quoted(value: bytes) -> str:
    """Return a string literal of these bytes: characters as themselves, and bytes that are no UTF-8 in octal."""
    text = value.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_printed, text)) + '"'


def _printed(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\{code - 0xDC00:03o}"
    return _PRINTED.get(code) or (character if code else "\\000")
