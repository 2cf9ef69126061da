"""The positions of records' fields in their bytes, as numbers.

Only the lengths of records are read one after the other, because each says where the next record begins. numpy reads all other
varints, for all records of some batches at once, so that the time of its calls is shared by many records. No key, value or
header is copied.
"""

from __future__ import annotations

from array import array
from itertools import accumulate
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.primitives import read_uvarint, read_varint
from ottla.protocol.records.record import RECORD_BYTES_MIN

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Bytes = np.ndarray[Any, np.dtype[np.uint8]]
#: The most bytes of a varint of 32 and of 64 bits, and the largest last byte.
INT, LONG = (5, 15), (10, 1)
#: This stands for the position behind a varint that is too long: it is behind the end of all bytes.
_BEYOND = 1 << 40


class InvalidRecord(KafkaError):
    """A record that is malformed; `offset` is the base offset of its batch."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(ErrorCode.INVALID_RECORD, why)
        self.offset = offset


class Fields(NamedTuple):
    """The fields of all records of a layout.

    A length below 0 means null. Keys and values are at [begin, end) of its bytes. `headers` has the numbers of the records with
    headers; the count of headers follows the value.
    """

    offsets: Numbers
    timestamps: Numbers
    key_lengths: Numbers
    key_begins: Numbers
    key_ends: Numbers
    value_lengths: Numbers
    value_begins: Numbers
    value_ends: Numbers
    headers: Numbers


class Layout:
    """The payloads of some batches, one after the other in `data`. `ends` are the positions behind their records."""

    __slots__ = ("_counts", "_epochs", "_has_append_time", "_offsets", "_times", "data", "ends")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ends = array("q")
        self._counts: list[int] = []
        self._offsets: list[int] = []
        self._times: list[int] = []
        self._epochs: list[int] = []
        self._has_append_time: list[bool] = []

    def __len__(self) -> int:
        return len(self.ends)

    def add(
        self,
        payload: bytes | memoryview,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int | None,
        leader_epoch: int = -1,
    ) -> None:
        """Add the `count` records that fill the payload. Raises InvalidRecord if their lengths do not fill it exactly."""
        if count > len(payload) // RECORD_BYTES_MIN:
            raise InvalidRecord(base_offset, f"record count {count} in {len(payload)} bytes")
        pos = len(self.data)
        self.data += payload
        data, size, add_end = self.data, len(self.data), self.ends.append
        try:
            for _ in range(count):
                # The lowest bit is the sign; `fields` checks it.
                byte = data[pos]
                if byte < 128:
                    pos += 1 + (byte >> 1)
                elif (high := data[pos + 1]) < 128:
                    pos += 2 + ((byte & 127 | high << 7) >> 1)
                else:
                    length, pos = read_uvarint(data, pos)
                    pos += length >> 1
                add_end(pos)
        except (IndexError, MalformedMessage) as fault:
            raise InvalidRecord(base_offset, f"a record is malformed: {fault}") from None
        if pos != size:
            raise InvalidRecord(base_offset, f"the {count} declared records end {pos - size:+} bytes from their end")
        self._counts.append(count)
        self._offsets.append(base_offset)
        self._times.append(base_timestamp if append_time is None else append_time)
        self._has_append_time.append(append_time is not None)
        self._epochs.append(leader_epoch)

    def leader_epochs(self) -> Numbers:
        """Return for each record the leader epoch of its batch."""
        return np.repeat(np.array(self._epochs, np.int64), self._counts)

    def timestamp_types(self) -> Numbers:
        """Return 0 for each record with a timestamp of its producer, and 1 for each with a timestamp of the broker."""
        return np.repeat(np.array(self._has_append_time, np.int64), self._counts)

    def fields(self) -> Fields:
        """Return the fields of all records. Raises InvalidRecord if the fields of one record do not fill it exactly."""
        data = np.frombuffer(self.data, np.uint8)
        ends = np.frombuffer(self.ends, np.int64)
        # For a position behind the end, the last byte is read. All later positions of the record are then behind the end, too.
        lengths, at = varints(data, np.concatenate((np.zeros(1, np.int64), ends[:-1])), INT)
        times, at = varints(data, at + 1, LONG)  # behind the attributes, which no version uses
        deltas, at = varints(data, at, INT)
        key_lengths, key_begins = varints(data, at, INT)
        key_ends = key_begins + np.maximum(key_lengths, 0)
        value_lengths, value_begins = varints(data, key_ends, INT)
        value_ends = value_begins + np.maximum(value_lengths, 0)
        has_headers = data.take(value_ends, mode="clip") != 0
        wrong = (lengths < 0) | (value_ends >= ends) | (~has_headers & (value_ends + 1 != ends))
        if wrong.any():
            self._reject(int(wrong.argmax()), int(value_ends[wrong][0]))
        times[self.timestamp_types() == 1] = 0
        offsets = np.repeat(np.array(self._offsets, np.int64), self._counts) + deltas
        times += np.repeat(np.array(self._times, np.int64), self._counts)
        keys, values = (key_lengths, key_begins, key_ends), (value_lengths, value_begins, value_ends)
        return Fields(offsets, times, *keys, *values, np.flatnonzero(has_headers))

    def headers_of(self, index: int, pos: int) -> list[tuple[str, bytes | None]]:
        """Return the headers of the record with this number, which begin at `pos`.

        Keys that are no UTF-8 become the text that Java makes of them.
        """
        end = self.ends[index]
        try:
            count, pos = read_varint(self.data, pos)
            if count < 0 or count > end - pos:  # each header takes at least two bytes, which bounds the allocation
                self._reject(index, pos)
            found: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                key, pos = self._field(pos, end)
                value, pos = self._field(pos, end)
                if key is None:
                    self._reject(index, pos)
                found.append((key.decode("utf-8", "replace"), value))
        except (IndexError, MalformedMessage):
            self._reject(index, pos)
        if pos != end:
            self._reject(index, pos)
        return found

    def _field(self, pos: int, end: int) -> tuple[bytes | None, int]:
        length, pos = read_varint(self.data, pos)
        if length < 0:
            return None, pos
        if pos + length > end:
            raise MalformedMessage(f"a field of {length} bytes where {end - pos} are left")
        return bytes(self.data[pos : pos + length]), pos + length

    def _reject(self, index: int, pos: int) -> NoReturn:
        ends = accumulate(self._counts)
        batch, end = next((batch, end) for batch, end in enumerate(ends) if index < end)
        number = index - (end - self._counts[batch])
        why = f"record {number} is malformed: its fields end at {pos}, and it at {self.ends[index]}"
        raise InvalidRecord(self._offsets[batch], why)


def varints(data: Bytes, at: Numbers, form: tuple[int, int]) -> tuple[Numbers, Numbers]:
    """Return the zigzag-coded numbers at these positions, and the positions behind them."""
    bytes_max, last_max = form
    byte = data.take(at, mode="clip")
    value = (byte & 127).astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(byte > 127)
    for number in range(1, bytes_max):
        if not len(longer):
            break
        byte = data.take(after[longer], mode="clip")
        value[longer] |= (byte & 127).astype(np.uint64) << np.uint64(7 * number)
        after[longer] += 1
        if number == bytes_max - 1:
            after[longer[byte > last_max]] = _BEYOND
        longer = longer[byte > 127]
    signs = (value & np.uint64(1)).view(np.int64)
    return (value >> np.uint64(1)).view(np.int64) ^ -signs, after
