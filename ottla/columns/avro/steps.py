"""The steps of plans: each reads one type of Avro for many values at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ottla.columns.avro.blocks import Block, BlockPart, Chosen, Flags, merged, numbers
from ottla.columns.layout import Numbers

#: Decimals beyond 64 bits are left to be read one by one.
_LONG_DIGITS = 18
_US_PER_MS = 1000
_MS_MAX = ((1 << 63) - 1) // _US_PER_MS


class AvroStep(Protocol):
    """Reads a type of Avro at these positions, one for each value of the part."""

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        """Return the values, and the positions behind them."""


class NullStep:
    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        return pa.nulls(len(at), self._kind), at


class BooleanStep:
    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        found = block.data.take(at, mode="clip")
        block.leave(part, found > 1)
        bits = pa.py_buffer(np.packbits(found != 0, bitorder="little"))
        return pa.Array.from_buffers(pa.bool_(), len(at), [None, bits]), at + 1


class LongStep:
    """Reads numbers, dates and times, also as a wider type of number."""

    def __init__(self, read: pa.DataType, arrow: pa.DataType) -> None:
        self._arrow = arrow
        self._is_int = arrow in (pa.int32(), pa.date32())
        self._is_millis = read != arrow
        self._is_float = pa.types.is_floating(arrow)

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        found, behind = block.longs(at)
        if self._is_int:
            narrow = found.astype(np.int32)
            block.leave(part, narrow != found)
            return numbers(self._arrow, narrow), behind
        if self._is_millis:
            block.leave(part, (found > _MS_MAX) | (found < -_MS_MAX))
            found = found * _US_PER_MS
        elif self._is_float:
            wide = found.astype(np.float64)
            return numbers(self._arrow, wide if self._arrow == pa.float64() else wide.astype(np.float32)), behind
        return numbers(self._arrow, found), behind


class FloatStep:
    def __init__(self, size: int, arrow: pa.DataType) -> None:
        self._size, self._kind, self._arrow = size, f"<f{size}", arrow

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        found = block.fixed(at, self._size, self._kind)
        with np.errstate(invalid="ignore"):  # the cast warns of signalling NaNs
            made = found if self._arrow == pa.float32() else found.astype(np.float64)
        return numbers(self._arrow, made), at + self._size


class BytesStep:
    """Reads bytes that follow their length, or have a given size. They become bytes or text."""

    def __init__(self, arrow: pa.DataType, size: int | None = None) -> None:
        self._is_text = arrow == pa.string()
        self._size = size

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        begins, ends = block.spans(part, at, self._size)
        return block.text(part, begins, ends) if self._is_text else block.binary(begins, ends), ends


class DecimalStep:
    """Reads decimals of at most 64 bits in up to 16 bytes. Others are left to be read one by one."""

    def __init__(self, arrow: pa.DataType, size: int | None = None) -> None:
        self._arrow, self._size = arrow, size

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        begins, ends = block.spans(part, at, self._size)
        lengths = ends - begins
        block.leave(part, lengths > 16)
        low, high = (self._word(block, begins, ends - shift) for shift in (0, 8))
        sign = low >> 63
        wrong = high != np.where(lengths > 8, sign, high)
        if self._arrow.precision <= _LONG_DIGITS:
            limit = 10**self._arrow.precision
            wrong |= (low >= limit) | (low <= -limit)
        block.leave(part, wrong)
        pairs = np.empty((len(at), 2), np.int64)
        pairs[:, 0], pairs[:, 1] = low, sign
        return pa.Array.from_buffers(self._arrow, len(at), [None, pa.py_buffer(pairs)]), ends

    @staticmethod
    def _word(block: Block, begins: Numbers, ends: Numbers) -> Numbers:
        """Return the number that the last eight bytes of each span stand for; a span may have fewer bytes."""
        lengths = np.clip(ends - begins, 0, 8)
        value = np.zeros(len(ends), np.int64)
        for place in range(int(lengths.max(initial=0))):
            byte = block.data.take(ends - 1 - place, mode="clip").astype(np.int64)
            byte = np.where(byte > 127, byte - 256, byte) if place == 7 else byte
            last = (lengths == place + 1) & (byte > 127)
            byte = np.where(last, byte - 256, byte)
            value += np.where(place < lengths, byte << (8 * place), 0)
        return value


class EnumStep:
    """Reads enums: the reader's symbols by the writer's numbers.

    A symbol that the reader lacks is None here, and its values are left.
    """

    def __init__(self, symbols: Sequence[str | None]) -> None:
        self._symbols = pa.array(symbols, pa.string())
        self._is_known: Flags = np.array([symbol is not None for symbol in symbols], np.bool_)

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        found, behind = block.longs(at)
        wrong = (found < 0) | (found >= len(self._symbols))
        found = np.where(wrong, 0, found)
        block.leave(part, wrong | ~self._is_known[found])
        return self._symbols.take(numbers(pa.int64(), found)), behind


class ConstantStep:
    """Gives a default, which has no bytes."""

    def __init__(self, value: pa.Array) -> None:
        self._value = value

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        return self._value.take(numbers(pa.int64(), np.zeros(len(at), np.int64))), at


class RecordStep:
    """Reads records: the writer's fields in their order, some of which the reader has, and the reader's further fields."""

    def __init__(
        self,
        arrow: pa.DataType,
        written: Sequence[tuple[AvroStep, int | None]],
        defaults: Sequence[tuple[int, AvroStep]],
    ) -> None:
        """Take the steps of the writer's fields, each with its place in the reader's record."""
        self._arrow = arrow
        self._written = written
        self._defaults = defaults

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        fields: dict[int, pa.Array] = {}
        for step, place in self._written:
            made, at = step.read(block, part, at)
            if place is not None:
                fields[place] = made
        for place, step in self._defaults:
            fields[place], _ = step.read(block, part, at)
        if not self._arrow.num_fields:
            return pa.Array.from_buffers(self._arrow, len(at), [None]), at
        arrays = [fields[place] for place in range(self._arrow.num_fields)]
        return pa.StructArray.from_arrays(arrays, fields=list(self._arrow)), at


class UnionStep:
    """Reads unions: the number of a branch, and its value.

    `members` has for each branch the member of the column, or None for null.

    A union with one member is that member's column; one of several is a struct in which one member is not null.
    """

    def __init__(
        self, arrow: pa.DataType, branches: Sequence[AvroStep | None], members: Sequence[int | None], is_struct: bool
    ) -> None:
        self._arrow = arrow
        self._branches = branches
        self._members = members
        self._is_struct = is_struct

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        chosen, at = block.longs(at)
        wrong = (chosen < 0) | (chosen >= len(self._branches))
        block.leave(part, wrong)
        by_member: dict[int, list[Chosen]] = {}
        is_null = np.ones(len(at), np.bool_)
        for branch in np.unique(chosen[~wrong]).tolist():
            places = np.flatnonzero(chosen == branch)
            step, member = self._branches[branch], self._members[branch]
            if step is None:  # the reader has no such branch
                block.is_left[part.rows[places]] = True
                continue
            made, at[places] = step.read(block, part.only(places), at[places])
            if member is not None:
                by_member.setdefault(member, []).append(Chosen(places, made))
                is_null[places] = False
        if not self._is_struct:
            return merged(by_member.get(0, []), len(at), self._arrow), at
        arrays = [merged(by_member.get(place, []), len(at), field.type) for place, field in enumerate(self._arrow)]
        return pa.StructArray.from_arrays(arrays, fields=list(self._arrow), mask=pa.array(is_null)), at


class ItemsStep:
    """Reads arrays: items in blocks.

    The first items of all values are read at once, then the second ones, and so on. When few values have many more items, these
    values are left: a step takes the same time for one value as for many.
    """

    def __init__(self, item: AvroStep, arrow: pa.DataType) -> None:
        self._item = item
        self._arrow = arrow

    def read(self, block: Block, part: BlockPart, at: Numbers) -> tuple[pa.Array, Numbers]:
        arrays, owners, at = self._items(block, part, at.copy())
        counts = np.zeros(len(at) + 1, np.int32)
        if not arrays:
            return self._made(block, part, counts, None, np.zeros(0, np.int64)), at
        owner = np.concatenate(owners)
        counts[1:] = np.bincount(owner, minlength=len(at))
        order = np.argsort(owner, kind="stable")
        values = pa.concat_arrays(arrays) if len(arrays) > 1 else arrays[0]
        values = values.take(numbers(pa.int64(), order)) if len(arrays) > 1 else values
        return self._made(block, part, np.cumsum(counts, dtype=np.int32), values, owner[order]), at

    def _items(self, block: Block, part: BlockPart, at: Numbers) -> tuple[list[pa.Array], list[Numbers], Numbers]:
        left = np.zeros(len(at), np.int64)
        ending: Numbers = np.arange(len(at))  # values whose items of the current block have all been read
        arrays: list[pa.Array] = []
        owners: list[Numbers] = []
        while True:
            left[ending], at[ending] = self._counts(block, part.only(ending), at[ending])
            active = np.flatnonzero(left)
            if not len(active) or not block.takes(len(active)):
                block.is_left[part.rows[active]] = True
                return arrays, owners, at
            made, at[active] = self._item.read(block, part.only(active), at[active])
            arrays.append(made)
            owners.append(active)
            left[active] -= 1
            ending = active[left[active] == 0]

    @staticmethod
    def _counts(block: Block, part: BlockPart, at: Numbers) -> tuple[Numbers, Numbers]:
        """Return the numbers of items of the next blocks. If the number is below 0, the block's length in bytes follows it."""
        counts, behind = block.longs(at)
        with_size = counts < 0
        if with_size.any():
            _, behind[with_size] = block.longs(behind[with_size])
            counts = np.where(with_size, -counts, counts)
        wrong = (counts < 0) | (counts > part.ends - behind)  # each item has at least a byte
        block.leave(part, wrong)
        return np.where(wrong, 0, counts), behind

    def _made(
        self, block: Block, part: BlockPart, offsets: np.ndarray[Any, Any], items: pa.Array | None, owner: Numbers
    ) -> pa.Array:
        values = pa.array([], self._arrow.value_type) if items is None else items
        return pa.ListArray.from_arrays(numbers(pa.int32(), offsets), values, type=self._arrow)


class MapStep(ItemsStep):
    """Reads maps: keys and values. A map that has a key twice is left."""

    def __init__(self, value: AvroStep, arrow: pa.DataType) -> None:
        entry = pa.struct([pa.field("key", pa.string(), False), pa.field("value", arrow.item_type)])
        super().__init__(RecordStep(entry, [(BytesStep(pa.string()), 0), (value, 1)], []), arrow)

    def _made(
        self, block: Block, part: BlockPart, offsets: np.ndarray[Any, Any], items: pa.Array | None, owner: Numbers
    ) -> pa.Array:
        if items is None:
            keys, values = pa.array([], pa.string()), pa.array([], self._arrow.item_type)
        else:
            keys, values = items.flatten()
            codes = keys.dictionary_encode()
            pairs = owner * len(codes.dictionary) + np.frombuffer(codes.indices.buffers()[1], np.int32)[: len(owner)]
            order = np.argsort(pairs, kind="stable")
            twice = order[1:][pairs[order][1:] == pairs[order][:-1]]
            block.is_left[part.rows[owner[twice]]] = True
        return pa.MapArray.from_arrays(numbers(pa.int32(), offsets), keys, values, type=self._arrow)
