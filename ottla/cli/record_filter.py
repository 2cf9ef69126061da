"""The filters of `ottla consume`, on key, value and headers. A record is printed if it matches all of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from ottla.cli.errors import USAGE, CommandFailed
from ottla.protocol.records.record import Record

Matches = Callable[[Record], bool]


def record_filter(key: str | None, value: str | None, headers: Sequence[str]) -> Matches:
    """Return whether a record matches: `key` and `value` are regular expressions that are searched in the bytes, each of
    `headers` is the NAME of a header that the record must have, or NAME=REGULAR_EXPRESSION for its value.

    A null key or value matches no expression.

    Raises:
        CommandFailed: a text is no regular expression.
    """
    filters: list[Matches] = []
    if key is not None:
        key_pattern = _pattern("--key", key)
        filters.append(lambda record: record.key is not None and key_pattern.search(record.key) is not None)
    if value is not None:
        value_pattern = _pattern("--value", value)
        filters.append(lambda record: record.value is not None and value_pattern.search(record.value) is not None)
    filters += [_header_filter(text) for text in headers]
    return lambda record: all(matches(record) for matches in filters)


def _header_filter(text: str) -> Matches:
    name, equals, expression = text.partition("=")
    if not name:
        raise CommandFailed(f"--header {text!r} has no name", "NAME, or NAME=REGEX", USAGE)
    pattern = _pattern("--header", expression)

    def matches(record: Record) -> bool:
        return any(
            found == name and (not equals or (value is not None and pattern.search(value) is not None))
            for found, value in record.headers
        )

    return matches


def _pattern(option: str, text: str) -> re.Pattern[bytes]:
    try:
        return re.compile(text.encode())
    except re.error as fault:
        raise CommandFailed(f"{option} {text!r} is no regular expression: {fault}", None, USAGE) from None
