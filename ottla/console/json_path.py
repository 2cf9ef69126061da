"""A condition on a JSON value: a path, and in most cases a comparison with a literal.

    $.order.id = 7         $.lines[*].sku = "a-1"       $.tags[0]            there is a first tag
    $.price >= 10.5        $['odd name'].kind != null   $.note ~ "urgent"    the text contains it

A path is one of JSONPath (RFC 9535) without filters and without `..`, so that each value of a record is compared once. `[*]`
and `.*` mean any item: one item that fits is enough. The literal is JSON; a word without quotes is a text.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from ottla.client.failures import Failure, Kind

CONDITION_CHARS_MAX = 500
EXAMPLE = 'for example $.order.id = 7, $.lines[*].sku = "a-1", $.note ~ urgent'
ANY = None
_STEP = re.compile(
    r"""\.?\[\s*(?:(?P<index>-?\d{1,9})|(?P<any>\*)|'(?P<single>[^']*)'|"(?P<double>[^"]*)")\s*\]"""
    r"""|\.(?P<star>\*)|\.?(?P<name>[^\s.\[\]=<>!~*'"]+)"""
)
_COMPARISON = re.compile(r"\s*(==|!=|<=|>=|=|<|>|~)\s*(.*)", re.DOTALL)

Step = str | int | None  # None stands for any item
Compare = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class JsonCondition:
    """The steps of a path, and the comparison of the values at its end."""

    steps: tuple[Step, ...]
    fits: Compare
    literal: Any = None

    def holds(self, value: Any) -> bool:
        return any(self.fits(found, self.literal) for found in _at(value, self.steps))


def read_condition(text: str) -> JsonCondition:
    """Return the condition of a text.

    Raises:
        Failure: the text is no condition.
    """
    if len(text) > CONDITION_CHARS_MAX:
        raise Failure(f"a JSON path of {len(text)} characters, more than {CONDITION_CHARS_MAX}", None, Kind.WRONG)
    rest = text.strip()
    at = 1 if rest.startswith("$") else 0
    steps: list[Step] = []
    while found := _STEP.match(rest, at):
        steps.append(_step(found))
        at = found.end()
    left = rest[at:]
    if not left.strip() and steps:
        return JsonCondition(tuple(steps), lambda found, literal: True)
    comparison = _COMPARISON.fullmatch(left)
    if comparison is None or not (steps or rest.startswith("$")):
        where = f" at {left.strip()[:40]!r}" if left.strip() else ""
        raise Failure(f"{text[:80]!r} is no JSON path{where}", EXAMPLE, Kind.WRONG)
    return JsonCondition(tuple(steps), _COMPARISONS[comparison[1]], _literal(comparison[2].strip()))


def _step(found: re.Match[str]) -> Step:
    if found["index"] is not None:
        return int(found["index"])
    if found["any"] or found["star"]:
        return ANY
    return next(found[name] for name in ("single", "double", "name") if found[name] is not None)


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _at(value: Any, steps: tuple[Step, ...]) -> Iterator[Any]:
    """Yield the values at the end of a path. Only one way leads to each of them."""
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if step is ANY:
        items = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        for item in items:
            yield from _at(item, rest)
    elif isinstance(step, int):
        if isinstance(value, list) and -len(value) <= step < len(value):
            yield from _at(value[step], rest)
    elif isinstance(value, dict) and step in value:
        yield from _at(value[step], rest)


def _equal(found: Any, literal: Any) -> bool:
    """Return whether two values of JSON are equal: true is not 1. A number that was written as a text is equal to its literal."""
    if isinstance(found, bool) or isinstance(literal, bool):
        return found is literal
    return bool(found == literal) or (isinstance(found, str) and _is_number(literal) and found == str(literal))


def _ordered(compare: Compare) -> Compare:
    def ordered(found: Any, literal: Any) -> bool:
        both = _is_number(found) and _is_number(literal), isinstance(found, str) and isinstance(literal, str)
        return any(both) and compare(found, literal)

    return ordered


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(found: Any, literal: Any) -> bool:
    return isinstance(found, str) and (literal if isinstance(literal, str) else json.dumps(literal)) in found


_COMPARISONS: dict[str, Compare] = {
    "=": _equal,
    "==": _equal,
    "!=": lambda found, literal: not _equal(found, literal),
    "<": _ordered(operator.lt),
    "<=": _ordered(operator.le),
    ">": _ordered(operator.gt),
    ">=": _ordered(operator.ge),
    "~": _contains,
}
