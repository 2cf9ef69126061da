"""Regular expressions and JSON paths over keys and values of records, in a process whose time and memory are bounded, because
users choose the expressions and producers the values.

RE2 runs the expressions, or the project's own matcher if the package google-re2 is missing; both take time linear in the text.
A value of VALUE_BYTES_MAX or more is not compared.

    a question of the process:    JSON {"key", "value", "path", "sizes": [[bytes of the key, bytes of the value], ...]}, and the bytes
    its answer:                   a byte for each record, YES, NO or NOT_SEEN; or "-" and why an expression is none
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ottla.client.failures import Failure, Kind, counted
from ottla.console.json_path import JsonCondition, read_condition
from ottla.registry.guarded_process import GuardedProcesses, ProcessEnded, serve
from ottla.server.extras import Pattern, compiled

ANSWER_S_MAX = 3.0
#: The most records, and bytes, of one question.
RECORDS_MAX = 500
QUESTION_BYTES_MAX = 4 * 1024 * 1024
VALUE_BYTES_MAX = 256 * 1024
EXPRESSION_CHARS_MAX = 500
#: The memory that the process may allocate: it holds one question.
MEMORY_BYTES_MAX = 256 * 1024 * 1024
YES, NO, NOT_SEEN = b"+-?"
_ABSENT = -1
_WRONG = b"!"


class Expressions(NamedTuple):
    """The regular expressions of key and value, and the JSON path of the value. Empty ones are not compared."""

    key: str = ""
    value: str = ""
    path: str = ""

    def check(self) -> None:
        """Check what can be checked without the process.

        Raises:
            Failure: one of them is malformed.
        """
        if max(len(self.key), len(self.value)) > EXPRESSION_CHARS_MAX:
            raise Failure(f"a regular expression has more than {EXPRESSION_CHARS_MAX} characters", None, Kind.WRONG)
        for expression in filter(None, (self.key, self.value)):
            _pattern(expression)
        if self.path:
            read_condition(self.path)


class ValueFilter:
    """One filter with its process, which starts with the first records. `close` ends the process."""

    def __init__(self, expressions: Expressions) -> None:
        expressions.check()
        self._expressions = expressions
        self._processes = GuardedProcesses(__name__, ANSWER_S_MAX, MEMORY_BYTES_MAX)

    async def close(self) -> None:
        await self._processes.close()

    async def verdicts(self, pairs: Sequence[tuple[bytes | None, bytes | None]]) -> bytes:
        """Return YES, NO or NOT_SEEN for each key and value.

        Raises:
            Failure: the expressions take too long for them.
        """
        found = bytearray()
        for part in _parts(pairs):
            question = self._expressions._asdict() | {"sizes": [tuple(map(_size, pair)) for pair in part]}
            data = b"".join(each for pair in part for each in pair if each is not None and len(each) < VALUE_BYTES_MAX)
            try:
                async with self._processes.taken() as process:
                    await process.ask(filter(None, (json.dumps(question).encode(), data)), ANSWER_S_MAX)
                    answer = await process.receive(ANSWER_S_MAX)
            except ProcessEnded as fault:
                cause = f"the filter cannot be applied to {counted(len(part), 'record')}: {fault}"
                raise Failure(cause, "narrow it, or make its expression simpler", Kind.WRONG) from None
            if answer[:1] == _WRONG:
                raise Failure(answer[1:].decode(), None, Kind.WRONG)
            found += answer
        return bytes(found)


def _size(data: bytes | None) -> int:
    return _ABSENT if data is None else len(data)


def _parts(
    pairs: Sequence[tuple[bytes | None, bytes | None]],
) -> Iterator[list[tuple[bytes | None, bytes | None]]]:
    part: list[tuple[bytes | None, bytes | None]] = []
    size = 0
    for pair in pairs:
        part.append(pair)
        size += sum(min(VALUE_BYTES_MAX, len(each or b"")) for each in pair)
        if len(part) >= RECORDS_MAX or size >= QUESTION_BYTES_MAX:
            yield part
            part, size = [], 0
    if part:
        yield part


def _pattern(expression: str) -> Pattern:
    """Return the pattern that finds an expression anywhere in a text.

    Raises:
        Failure: the expression is malformed.
    """
    try:
        compiled(expression)  # alone first: "a)(b" would be valid within the parentheses
        return compiled(f"(?s:.*)(?:{expression})(?s:.*)")
    except ValueError as fault:
        raise Failure(f"{expression[:80]!r} is no regular expression: {fault}", None, Kind.WRONG) from None


# -- In a process of its own ---------------------------------------------------------------------------------------------


class FilterAnswers:
    """Answer the questions in the process. It keeps the patterns of the last question."""

    def __init__(self) -> None:
        self._asked: Expressions | None = None
        self._key: Pattern | None = None
        self._value: Pattern | None = None
        self._condition: JsonCondition | None = None

    def __call__(self, parts: list[bytes]) -> Iterator[bytes]:
        question: dict[str, Any] = json.loads(parts[0])
        data, at = b"".join(parts[1:]), 0
        answer = bytearray()
        try:
            self._take(Expressions(question["key"], question["value"], question["path"]))
            for sizes in question["sizes"]:
                pair: list[bytes | None] = []
                for size in sizes:
                    seen = 0 <= size < VALUE_BYTES_MAX
                    pair.append(data[at : at + size] if seen else None)
                    at += size if seen else 0
                answer.append(self._verdict(pair[0], pair[1], max(sizes) >= VALUE_BYTES_MAX))
        except (Failure, ValueError) as fault:  # ValueError: the project's own matcher has reached its limit of work
            yield _WRONG + str(fault).encode("utf-8", "backslashreplace")
            return
        yield bytes(answer)

    def _take(self, asked: Expressions) -> None:
        if asked != self._asked:
            self._key = _pattern(asked.key) if asked.key else None
            self._value = _pattern(asked.value) if asked.value else None
            self._condition = read_condition(asked.path) if asked.path else None
            self._asked = asked

    def _verdict(self, key: bytes | None, value: bytes | None, is_too_large: bool) -> int:
        if is_too_large:
            return NOT_SEEN
        for pattern, found in ((self._key, key), (self._value, value)):
            if pattern is not None and (found is None or not pattern.fullmatch(found.decode("utf-8", "replace"))):
                return NO
        if self._condition is None:
            return YES
        try:
            return YES if value is not None and self._condition.holds(json.loads(value)) else NO
        except (ValueError, RecursionError):
            return NO


if __name__ == "__main__":
    serve(FilterAnswers())
