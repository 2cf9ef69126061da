"""JSON as Jackson reads and writes it. Jackson is the library of Confluent's registry and of Avro for Java.

The canonical text of a schema is its identity: its MD5 decides about its id. So everything has to be printed as Java does it,
such as 1.0E25 for 1e+25. In Avro numbers with a point are doubles, in Confluent's JSON Schema exact decimals: Avro prints 1.10
as 1.1, and JSON Schema as 1.10. Reference: Double.toString of JDK 19 and later, BigDecimal.toString, and Jackson 2.18.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, NoReturn

#: Java's bounds of a number in JSON: the scale of a BigDecimal is an int32, and Jackson reads at most 1000 digits.
EXPONENT_MAX = 2**31 - 1
DIGITS_MAX = 1_000
#: A text in quotes, or a comment. One without an end goes to the end of the text, so that each character is read once.
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*"?|/\*(?:.*?\*/|.*)|//[^\r\n]*', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u[0-9a-f]{4}|.)")
Json = Any


def loads(text: str, *, comments: bool = False, exact: bool = False) -> Json:
    """Parse JSON.

    Args:
        comments: whether `/* */` and `//` before the end of the value are allowed, as in Avro's parser.
        exact: whether numbers with a point or an exponent become exact (instances of Decimal) or doubles.

    Raises:
        ValueError: the text is no JSON. NaN and Infinity are not allowed.
        RecursionError: the JSON is nested too deeply.
    """
    decoder = json.JSONDecoder(
        parse_float=_decimal if exact else _double, parse_int=_integer, parse_constant=_no_constant
    )
    if not comments or "/" not in text:
        return decoder.decode(text)
    blanked = _TOKENS.sub(_blank, text)
    value, end = decoder.raw_decode(blanked, len(blanked) - len(blanked.lstrip(" \t\r\n")))
    if text[end:].strip(" \t\r\n"):
        raise ValueError(f"dangling content after end of schema: {text[end:].strip()[:100]}")
    return value


def dump(value: Json) -> str:
    """Return JSON as Jackson writes it: without spaces, with characters beyond ASCII as they are, and with Java's numbers."""
    parts: list[str] = []
    _write(value, parts)
    return "".join(parts)


def sorted_keys(value: Json) -> Json:
    """Return JSON with the keys of all objects sorted."""
    if isinstance(value, dict):
        return {key: sorted_keys(value[key]) for key in sorted(value)}
    return [sorted_keys(row) for row in value] if isinstance(value, list) else value


def double_text(value: float) -> str:
    """Return a double as Double.toString does in Java: the fewest digits that give this double, but at least two."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value == 0:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    if len(digits) == 1:
        # Java prints the two nearest digits: 4.9E-324, although the single digit 5 would be enough.
        sign, digits, exponent = Decimal(f"{value:.1e}").as_tuple()
        assert isinstance(exponent, int)
    text, point = "".join(map(str, digits)), len(digits) + exponent
    minus = "-" if sign else ""
    if not 1e-3 <= abs(value) < 1e7:
        return f"{minus}{text[0]}.{text[1:].rstrip('0') or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text.rstrip('0')}"
    whole, part = text[:point].ljust(point, "0"), text[point:].rstrip("0")
    return f"{minus}{whole}.{part or '0'}"


def _write(value: Json, parts: list[str]) -> None:
    if isinstance(value, dict):
        before = "{"
        for key, row in value.items():
            parts += (before, _quoted(key), ":")
            _write(row, parts)
            before = ","
        parts.append("}" if value else "{}")
    elif isinstance(value, list):
        before = "["
        for row in value:
            parts.append(before)
            _write(row, parts)
            before = ","
        parts.append("]" if value else "[]")
    elif isinstance(value, str):
        parts.append(_quoted(value))
    elif isinstance(value, float):
        parts.append(double_text(value))
    else:
        parts.append(str(value) if isinstance(value, Decimal) else json.dumps(value))


def _quoted(text: str) -> str:
    made = json.dumps(text, ensure_ascii=False)
    # Jackson escapes control characters with upper-case digits.
    return _ESCAPE.sub(_upper, made) if "\\u00" in made else made


def _upper(found: re.Match[str]) -> str:
    return "\\u" + found[0][2:].upper() if found[0][1] == "u" else found[0]


def _blank(found: re.Match[str]) -> str:
    token = found[0]
    is_comment = token.startswith("//") or (token.startswith("/*") and token.endswith("*/") and len(token) > 3)
    return " " * len(token) if is_comment else token


def _double(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"{text} is no double")
    return value


def _decimal(text: str) -> Decimal:
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number of more than {DIGITS_MAX} digits")
    if abs(int(text.lower().partition("e")[2] or 0)) + len(text) > EXPONENT_MAX:
        raise ValueError(f"{text} is out of range")
    value = Decimal(text)
    return abs(value) if value == 0 else value  # a BigDecimal has no negative zero


def _integer(text: str) -> int:
    if len(text.lstrip("-")) > DIGITS_MAX:
        raise ValueError(f"a number of more than {DIGITS_MAX} digits")
    return int(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")
