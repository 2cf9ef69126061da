"""How many bytes a value has in memory, about: of a long collection a sample is measured."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Any

#: Items of a collection that are measured, by its depth in the value: 16,384 at most in all, which take some milliseconds.
SAMPLED = (64, 16, 4, 2, 2)


def footprint(value: Any, depth: int = 0) -> int:
    """Return the estimate. What lies deeper than SAMPLED counts with its outermost object alone."""
    size = sys.getsizeof(value)
    if depth >= len(SAMPLED) or isinstance(value, str | bytes | int | float | None):
        return size
    if isinstance(value, Mapping):
        return size + _of_items((part for row in value.items() for part in row), 2 * len(value), depth)
    if isinstance(value, Collection):
        return size + _of_items(value, len(value), depth)
    return size + sum(footprint(part, depth + 1) for part in _fields_of(value))


def _of_items(items: Iterable[Any], count: int, depth: int) -> int:
    step = max(1, count // SAMPLED[depth]) | 1  # odd: of a mapping keys and values both
    sizes = [footprint(item, depth + 1) for item in islice(items, 0, count, step)]
    return sum(sizes) * count // max(1, len(sizes))


def _fields_of(value: Any) -> list[Any]:
    names = [name for made in type(value).__mro__ for name in made.__dict__.get("__slots__", ())]
    return [getattr(value, name) for name in names if hasattr(value, name)] + list(
        getattr(value, "__dict__", {}).values()
    )
