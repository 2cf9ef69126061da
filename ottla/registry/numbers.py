"""Numbers and JSON from outside: in a path, a query, a request's JSON, or a record of the topic.

Ids and versions are int32, as in the wire format.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from ottla.registry.errors import RegistryError

INT32_MAX = 2**31 - 1
LATEST = -1
_DIGITS = re.compile(r"[+-]?[0-9]{1,32}", re.ASCII)


def int32(value: object) -> int | None:
    """Return a JSON value or a text as a 32-bit number, or None if it is none.

    As with Jackson in Confluent's registry, 1.0 and 1e3 are integers, and "7" is a number; true, NaN and 1.5 are not.
    """
    if isinstance(value, str):
        text = value.strip()
        number = int(text) if _DIGITS.fullmatch(text) else None
    elif isinstance(value, float):
        number = int(value) if value.is_integer() else None
    else:
        number = value if isinstance(value, int) and not isinstance(value, bool) else None
    return number if number is not None and -INT32_MAX - 1 <= number <= INT32_MAX else None


def version_of(value: object) -> int:
    """Return the version in a path or a reference. It is LATEST for "latest" and -1.

    Raises:
        RegistryError: the text is no version.
    """
    number = LATEST if isinstance(value, str) and value.strip().lower() == "latest" else int32(value)
    if number is None or (number <= 0 and number != LATEST):
        raise RegistryError("invalid_version", str(value)[:100] if isinstance(value, str | int | float) else "")
    return number


def json_from(data: bytes) -> Any:
    """Return the JSON in a body.

    Values are rejected that no response and no record can have: NaN, 1e999, half of a surrogate pair.

    Raises:
        ValueError: it is no JSON, or has such a value.
    """
    made = json.loads(data, parse_constant=_no_number, parse_float=_finite)
    if b"\\ud" in data.lower():
        try:
            json.dumps(made, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no character") from None
    return made


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _no_number(text: str) -> float:
    raise ValueError(f"{text[:20]} is no number")
