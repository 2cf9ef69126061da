"""The number of brokers of `--processes` and OTTLA_PROCESSES."""

from __future__ import annotations

#: The brokers of the controller I have the ids I * 1000 + 1 and up: with 1000 of them the last would be the next machine's.
COUNT_MAX = 999


def process_count(text: str) -> int:
    """Raises ValueError, whose text says what is expected, for anything but a number of brokers."""
    if text.strip().isascii() and text.strip().isdigit() and 1 <= int(text) <= COUNT_MAX:
        return int(text)
    raise ValueError(f"{text!r} is not a number of brokers between 1 and {COUNT_MAX}")
