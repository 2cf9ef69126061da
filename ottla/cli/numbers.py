"""Numbers from outside: of a form, a link, an option. Python's have no bound, those of Kafka's protocol have 32 or 64 bits."""

from __future__ import annotations

import re

INT8_MAX, INT16_MAX, INT32_MAX = 2**7 - 1, 2**15 - 1, 2**31 - 1
INT64_MAX = 2**63 - 1
_DIGITS = re.compile(r"-?[0-9]{1,19}")


def number_in(text: str, low: int, high: int) -> int | None:
    """Return the number that a text is in ASCII digits, None if it is none or not within the bounds."""
    number = int(text) if _DIGITS.fullmatch(text) else None
    return number if number is not None and low <= number <= high else None
