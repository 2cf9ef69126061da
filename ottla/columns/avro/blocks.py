"""Avro's bytes of many values are read at once, by numpy: each step reads one part of all values, and moves all positions
behind it.

Nothing here raises an error for damaged bytes. A value that does not fit its schema, or has a form that is not read here, is
marked as left. It is then read alone, which finds the value or the reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ottla.columns.layout import LONG, Bytes, Numbers, varints

Flags = np.ndarray[Any, np.dtype[np.bool_]]
#: Fewer values than this are read faster one by one.
VALUES_MIN = 64
#: A step for the next items is worth it for this many values. For fewer values a block may have this many steps all the same.
ITEMS_MIN, SMALL_STEPS_MAX = 256, 256


class BlockPart(NamedTuple):
    """Some values of a block in ascending order: their numbers, and the end of each."""

    rows: Numbers
    ends: Numbers

    def only(self, places: Numbers) -> BlockPart:
        return BlockPart(self.rows[places], self.ends[places])


class Block:
    """The bytes of the values, and which of the values are left to be read one by one."""

    def __init__(self, data: pa.Buffer, count: int) -> None:
        assert data.size
        self._buffer = data
        self.data: Bytes = np.frombuffer(data, np.uint8)
        self.is_left: Flags = np.zeros(count, np.bool_)
        self._small_steps = 0

    def leave(self, part: BlockPart, which: Flags) -> None:
        if which.any():
            self.is_left[part.rows[which]] = True

    def takes(self, count: int) -> bool:
        """Return whether the next items of this many values are read at once."""
        self._small_steps += count < ITEMS_MIN
        return count >= ITEMS_MIN or self._small_steps <= SMALL_STEPS_MAX

    def longs(self, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return the numbers at these positions, and the positions behind them.

        For a number that is too long, that position is behind all ends.
        """
        return varints(self.data, at, LONG)

    def fixed(self, at: Numbers, size: int, kind: str) -> np.ndarray[Any, Any]:
        """Return the numbers of `size` bytes at these positions."""
        places = at[:, None] + np.arange(size)
        return self.data.take(places, mode="clip").view(kind)[:, 0]

    def spans(self, part: BlockPart, at: Numbers, size: int | None = None) -> tuple[Numbers, Numbers]:
        """Return begin and end of bytes that follow their lengths, or have the given length. All are within their values."""
        lengths, begins = (np.full(len(at), size), at) if size is not None else self.longs(at)
        wrong = (lengths < 0) | (lengths > part.ends - begins)
        if wrong.any():
            self.leave(part, wrong)
            begins = np.where(wrong, part.ends, begins)
            lengths = np.where(wrong, 0, lengths)
        return begins, begins + lengths

    def binary(self, begins: Numbers, ends: Numbers) -> pa.Array:
        """Return the bytes of spans that follow each other.

        Every second piece of the whole buffer is a span, so that Arrow copies them once.
        """
        bounds = np.zeros(2 * len(begins) + 2, np.int32)
        bounds[1:-1:2], bounds[2::2], bounds[-1] = begins, ends, ends[-1] if len(ends) else 0
        pieces = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), self._buffer])
        return pieces.take(numbers(pa.int64(), np.arange(1, 2 * len(begins), 2)))

    def text(self, part: BlockPart, begins: Numbers, ends: Numbers) -> pa.Array:
        """Return spans as text. A span that is no UTF-8 is left to be read alone."""
        made = self.binary(begins, ends)
        try:
            return made.cast(pa.string())
        except pa.ArrowInvalid:
            wrong = np.array([not _is_text(each) for each in made.to_pylist()], np.bool_)
            self.leave(part, wrong)
            return self.binary(begins, np.where(wrong, begins, ends)).cast(pa.string())


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def numbers(kind: pa.DataType, values: np.ndarray[Any, Any], is_null: Flags | None = None) -> pa.Array:
    """Return an Arrow array on the memory of numbers with the same width."""
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(values)])


class Chosen(NamedTuple):
    """The values at these places of a column: those with these numbers in the array, or all of the array."""

    places: Numbers
    array: pa.Array
    numbers: Numbers | None = None


def merged(parts: list[Chosen], count: int, kind: pa.DataType) -> pa.Array:
    """Return `count` values. A place that no part has is null."""
    parts = [part for part in parts if len(part.places)]
    if not parts:
        return pa.nulls(count, kind)
    if len(parts) == 1 and len(parts[0].places) == count and parts[0].numbers is None:
        return parts[0].array
    indices, is_null = np.zeros(count, np.int64), np.ones(count, np.bool_)
    before = 0
    for places, array, chosen in parts:
        indices[places] = before + (np.arange(len(places)) if chosen is None else chosen)
        is_null[places] = False
        before += len(array)
    array = parts[0].array if len(parts) == 1 else pa.concat_arrays([part.array for part in parts])
    return array.take(numbers(pa.int64(), indices, is_null if is_null.any() else None))
