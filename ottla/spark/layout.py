"""Where the fields of records lie in their bytes, as numbers: the loop over varints on which the speed of a read hangs.

No key, value or header is copied. A column that is not asked for costs its varint alone.
"""

from __future__ import annotations

from array import array

from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.primitives import read_varint, read_varlong
from ottla.protocol.records.record import RECORD_BYTES_MIN


class Layout:
    """The payloads of some batches, end to end, and what their records are.

    `bounds` has four positions of `data` for each record: begin and end of its key, begin and end of its value. A null field
    begins where it ends, and the number of its record is in `null_keys` or `null_values`; `with_headers` has those of records
    with headers, and `ends` their last bytes' positions.
    """

    __slots__ = ("bounds", "data", "ends", "null_keys", "null_values", "offsets", "timestamps", "with_headers")

    def __init__(self) -> None:
        self.data = bytearray()
        self.offsets = array("q")
        self.timestamps = array("q")
        self.bounds: list[int] = [0]
        self.null_keys: list[int] = []
        self.null_values: list[int] = []
        self.with_headers: list[int] = []
        self.ends: list[int] = []

    def __len__(self) -> int:
        return len(self.offsets)

    def add(
        self, payload: bytes | memoryview, count: int, base_offset: int, base_timestamp: int, append_time: int | None
    ) -> None:
        """Adds the `count` records that fill the payload. Raises KafkaError(INVALID_RECORD) if they do not."""
        if count > len(payload) // RECORD_BYTES_MIN:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"record count {count} in {len(payload)} bytes")
        before = len(self)
        pos = len(self.data)
        self.data += payload
        try:
            pos = self._walk(pos, before, count, base_offset, base_timestamp)
        except (IndexError, MalformedMessage, OverflowError) as fault:
            raise _invalid(len(self) - before, str(fault)) from None
        if pos != len(self.data):
            left = len(self.data) - pos
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{left} bytes are left after the {count} declared records")
        if append_time is not None:
            self.timestamps[before:] = array("q", (append_time,)) * count

    def _walk(self, pos: int, before: int, count: int, base_offset: int, base_timestamp: int) -> int:
        """Appends the records from `pos` on and returns the position after them. A varint of one or two bytes, nearly all that
        there are, is read in place: a call would cost as much as all else."""
        data, size, bounds = self.data, len(self.data), self.bounds
        add_offset, add_time = self.offsets.append, self.timestamps.append
        for index in range(before, before + count):
            byte = data[pos]
            if byte < 128:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            elif (high := data[pos + 1]) < 128:
                length = ((byte & 127 | high << 7) >> 1) ^ -(byte & 1)
                pos += 2
            else:
                length, pos = read_varint(data, pos)
            end = pos + length
            if length < 0 or end > size:
                raise _invalid(index - before, f"{length} bytes where {size - pos} are left")
            byte = data[pos + 1]  # after the attributes, which no version uses
            if byte < 128:
                add_time(base_timestamp + ((byte >> 1) ^ -(byte & 1)))
                pos += 2
            elif (high := data[pos + 2]) < 128:
                add_time(base_timestamp + (((byte & 127 | high << 7) >> 1) ^ -(byte & 1)))
                pos += 3
            else:
                delta, pos = read_varlong(data, pos + 1)
                add_time(base_timestamp + delta)
            byte = data[pos]
            if byte < 128:
                add_offset(base_offset + ((byte >> 1) ^ -(byte & 1)))
                pos += 1
            elif (high := data[pos + 1]) < 128:
                add_offset(base_offset + (((byte & 127 | high << 7) >> 1) ^ -(byte & 1)))
                pos += 2
            else:
                delta, pos = read_varint(data, pos)
                add_offset(base_offset + delta)
            byte = data[pos]
            if byte < 128:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            else:
                length, pos = read_varint(data, pos)
            if length < 0:
                self.null_keys.append(index)
                length = 0
            key_at = pos
            key_end = pos = pos + length
            byte = data[pos]
            if byte < 128:
                length = (byte >> 1) ^ -(byte & 1)
                pos += 1
            elif (high := data[pos + 1]) < 128:
                length = ((byte & 127 | high << 7) >> 1) ^ -(byte & 1)
                pos += 2
            else:
                length, pos = read_varint(data, pos)
            if length < 0:
                self.null_values.append(index)
                length = 0
            bounds += (key_at, key_end, pos, pos + length)
            pos += length
            if pos >= end:
                raise _invalid(index - before, f"its fields end at {pos}, and it at {end}")
            if data[pos]:
                self.with_headers.append(index)
                self.ends.append(end)
            elif pos + 1 != end:
                raise _invalid(index - before, f"its fields end at {pos + 1}, and it at {end}")
            pos = end
        return pos

    def headers_of(self, number: int) -> list[tuple[str, bytes | None]]:
        """Returns the headers of the record that stands at this place in `with_headers`; keys that are no UTF-8 as Java shows them."""
        pos, end = self.bounds[4 * self.with_headers[number] + 4], self.ends[number]
        try:
            count, pos = read_varint(self.data, pos)
            if count < 0 or count > end - pos:  # each header takes two bytes: this bounds what is allocated
                raise _invalid(number, f"{count} headers in {end - pos} bytes")
            found: list[tuple[str, bytes | None]] = []
            for _ in range(count):
                key, pos = self._field(pos, end)
                value, pos = self._field(pos, end)
                if key is None:
                    raise _invalid(number, "a header without a key")
                found.append((key.decode("utf-8", "replace"), value))
        except (IndexError, MalformedMessage) as fault:
            raise _invalid(number, str(fault)) from None
        if pos != end:
            raise _invalid(number, f"its headers end at {pos}, and it at {end}")
        return found

    def _field(self, pos: int, end: int) -> tuple[bytes | None, int]:
        length, pos = read_varint(self.data, pos)
        if length < 0:
            return None, pos
        if pos + length > end:
            raise MalformedMessage(f"a field of {length} bytes where {end - pos} are left")
        return bytes(self.data[pos : pos + length]), pos + length


def _invalid(index: int, why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD, f"record {index} is malformed: {why}")
