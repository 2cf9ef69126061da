"""Python's objects become columns, one field of all objects at a time: JSON as msgspec reads it, and messages of Protobuf.

A field of a thousand objects costs one list and one call of Arrow; a dictionary for each object would cost three times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ottla.columns.avro.blocks import Chosen

Values = Sequence[Any]
#: This many objects are made at a time.
OBJECTS = 512
#: The errors of Arrow and Python for values that do not fit a type.
NOT_FITTING = (pa.ArrowException, OverflowError, TypeError, ValueError)


class ColumnNode(Protocol):
    """Makes an array of values; None becomes null."""

    kind: pa.DataType

    def array(self, values: Values) -> pa.Array:
        """Return the values as an array. Raises one of NOT_FITTING."""


class Leaf:
    """Values that Arrow takes as they are, or after `change`."""

    def __init__(self, kind: pa.DataType, change: Callable[[Any], Any] | None = None) -> None:
        self.kind = kind
        self._change = change

    def array(self, values: Values) -> pa.Array:
        change = self._change
        if change is not None:
            values = [None if each is None else change(each) for each in values]
        return pa.array(values, self.kind)


class ListNode:
    def __init__(self, item: ColumnNode) -> None:
        self.kind = pa.list_(item.kind)
        self._item = item

    def array(self, values: Values) -> pa.Array:
        items = self._item.array([*chain.from_iterable(filter(None, values))])
        return pa.ListArray.from_arrays(_offsets(values), items, type=self.kind)


class MapNode:
    def __init__(self, key: pa.DataType, value: ColumnNode) -> None:
        self.kind = pa.map_(key, value.kind)
        self._value = value

    def array(self, values: Values) -> pa.Array:
        entries = [*chain.from_iterable(each.items() for each in filter(None, values))]
        keys = pa.array([key for key, _ in entries], self.kind.key_type)
        items = self._value.array([value for _, value in entries])
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=self.kind)


class StructNode:
    """The fields of a struct: the name of each, the function that reads it from an object, and its node."""

    def __init__(self, fields: Sequence[tuple[str, Callable[[Any], Any], ColumnNode]]) -> None:
        self._fields = fields
        self.kind = pa.struct([(name, node.kind) for name, _, node in fields])

    def array(self, values: Values) -> pa.Array:
        if not self._fields:
            return pa.array([None if each is None else {} for each in values], self.kind)
        is_null = [each is None for each in values]
        if not any(is_null):
            arrays = [node.array([*map(read, values)]) for _, read, node in self._fields]
            return pa.StructArray.from_arrays(arrays, fields=list(self.kind))
        arrays = [
            node.array([None if each is None else read(each) for each in values]) for _, read, node in self._fields
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind), mask=pa.array(is_null, pa.bool_()))


def _offsets(values: Values) -> pa.Array:
    """Return the offset at which the items of each value begin; null if there is no value."""
    offsets: list[int | None] = []
    end = 0
    for each in values:
        offsets.append(None if each is None else end)
        end += 0 if each is None else len(each)
    return pa.array([*offsets, end], pa.int32())


def assembled(node: ColumnNode, objects: Iterator[tuple[int, Any]], wrong: dict[int, str]) -> list[Chosen]:
    """Return the objects as parts of a column, by their rows. Add the reasons of those that do not fit its type.

    Some hundreds at a time stay in the processor's caches, and are freed before the garbage collector scans them.
    """
    parts: list[Chosen] = []
    while some := [*islice(objects, OBJECTS)]:
        rows, values = zip(*some, strict=True)
        places, arrays = fitting(node, rows, values, wrong)
        if arrays:
            whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
            parts.append(Chosen(np.array(places, np.int64), whole))
    return parts


def fitting(
    node: ColumnNode, rows: Sequence[int], values: Values, wrong: dict[int, str]
) -> tuple[list[int], list[pa.Array]]:
    """Return the rows whose values fit the type, and their arrays.

    Add the reasons of the others. These are found by bisection: each costs as many steps as the logarithm of the number of
    values.
    """
    if not values:
        return [], []
    try:
        return [*rows], [node.array(values)]
    except NOT_FITTING as fault:
        if len(values) == 1:
            wrong[rows[0]] = str(fault) or type(fault).__name__
            return [], []
    half = len(values) // 2
    first, arrays = fitting(node, rows[:half], values[:half], wrong)
    second, more = fitting(node, rows[half:], values[half:], wrong)
    return first + second, arrays + more
