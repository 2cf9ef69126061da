"""The primitive types of the wire: varints, arrays of numbers, skipped tagged fields, UUIDs, and the limits of all of them.

Readers take (buffer, position) and return (value, new position). Past the buffer's end they raise IndexError or
struct.error, which the compiled decoders turn into MalformedMessage. For every other error they raise MalformedMessage.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from random import Random
from struct import Struct, pack, unpack_from
from typing import TypeAlias

from ottla.protocol.errors import MalformedMessage, ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
#: The bytes of an encoded message. Records are pieces of their own, so that they are not copied.
Pieces: TypeAlias = list[Buffer]

# Kafka 4.4 rejects larger arrays and tag sections than these, however long the message is.
ARRAY_ITEMS_MAX = 1_000_000
TAGGED_FIELDS_MAX = 10_000
# The longest string: the signed two-byte length of the non-flexible form limits both forms.
STRING_BYTES_MAX = 32_767
UVARINT_MAX = 0xFFFF_FFFF
VARLONG_BYTES_MAX = 10


def read_uvarint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read an unsigned varint of at most five bytes and 32 bits."""
    first = buf[pos]
    if first < 128:
        return first, pos + 1
    return read_uvarint_rest(buf, pos + 1, first)


def read_uvarint_rest(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Return the rest of an unsigned varint whose first byte was `first` and had the continuation bit set."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > UVARINT_MAX:
                break
            return value, pos
    raise MalformedMessage("varint is longer than five bytes or 32 bits")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a zigzag-coded signed varint of 32 bits."""
    value, pos = read_uvarint(buf, pos)
    return (value >> 1) ^ -(value & 1), pos


def read_varlong(buf: Buffer, pos: int) -> tuple[int, int]:
    """Return a zigzag-coded signed varint of 64 bits, at most ten bytes."""
    value = 0
    for shift in range(0, 7 * VARLONG_BYTES_MAX, 7):
        byte = buf[pos]
        pos += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value >> 64:
                break
            return (value >> 1) ^ -(value & 1), pos
    raise MalformedMessage("varlong is longer than ten bytes or 64 bits")


def uvarint(value: int) -> bytes:
    """Encode an unsigned varint (any size: 64-bit varlongs use it too)."""
    if value < 128:
        return _ONE_BYTE[value]
    if value < 16_384:
        # Most lengths in a small request take this path: 0.1 us instead of 0.3.
        return (value & 127 | 128 | value >> 7 << 8).to_bytes(2, "little")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    """Encode a signed 32-bit number in zigzag form."""
    return uvarint((value << 1 ^ value >> 31) & 0xFFFF_FFFF)


def varlong(value: int) -> bytes:
    """Encode a signed 64-bit number in zigzag form."""
    return uvarint((value << 1 ^ value >> 63) & 0xFFFF_FFFF_FFFF_FFFF)


_ONE_BYTE = tuple(bytes((value,)) for value in range(128))


def string_length(count: int) -> bytes:
    """Length prefix of a compact string too long for one byte; `count` is the byte length plus one."""
    if count > STRING_BYTES_MAX + 1:
        raise ProtocolError(f"string of {count - 1} bytes is longer than {STRING_BYTES_MAX}")
    return uvarint(count)


def read_string_length(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Return the rest of a compact string's length, when its first byte was `first`."""
    count, pos = read_uvarint_rest(buf, pos, first)
    if count > STRING_BYTES_MAX + 1:
        raise MalformedMessage(f"string of {count - 1} bytes is longer than {STRING_BYTES_MAX}")
    return count, pos


# Replica lists have a few elements and there are many of them: their structs are made in advance.
_FEW = 17
_SMALL = {code: [Struct(f">{count}{code}") for count in range(_FEW)] for code in "bhiqHId"}
_READ_SMALL = {code: [small.unpack_from for small in structs] for code, structs in _SMALL.items()}
_PACK_SMALL = {code: [small.pack for small in structs] for code, structs in _SMALL.items()}


def read_numbers(code: str, size: int, buf: Buffer, pos: int, count: int) -> tuple[list[int], int]:
    """Read `count` numbers of struct code `code`; the caller has checked `count` against the bytes that are there."""
    if count < _FEW:
        return list(_READ_SMALL[code][count](buf, pos)), pos + size * count
    return list(unpack_from(f">{count}{code}", buf, pos)), pos + size * count


def numbers(code: str, values: list[int]) -> bytes:
    """Encode numbers of struct code `code`, without a count."""
    count = len(values)
    if count < _FEW:
        return _PACK_SMALL[code][count](*values)
    return pack(f">{count}{code}", *values)


def read_uuids(buf: Buffer, pos: int, count: int) -> tuple[list[bytes], int]:
    """Read `count` UUIDs; the caller has checked `count` against the bytes that are there."""
    stop = pos + 16 * count
    return [bytes(buf[start : start + 16]) for start in range(pos, stop, 16)], stop


def skip_tags(buf: Buffer, pos: int, end: int, count: int) -> int:
    """Skip a tag section without known tags; `count` is its first byte."""
    if count > 127:
        count, pos = read_uvarint_rest(buf, pos, count)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields are more than {TAGGED_FIELDS_MAX}")
    for _ in range(count):
        _, pos = read_uvarint(buf, pos)
        size, pos = read_uvarint(buf, pos)
        pos += size
        if pos > end:
            raise MalformedMessage("tagged field runs past the end of the message")
    return pos


def uuid_to_str(uuid: bytes) -> str:
    """Return Kafka's text form: URL-safe base64 without padding, 22 characters."""
    return urlsafe_b64encode(uuid)[:22].decode("ascii")


def uuid_from_str(text: str) -> bytes:
    """Return the 16 bytes of Kafka's text form; ValueError when it is not one."""
    try:
        uuid = urlsafe_b64decode(text + "==") if len(text) == 22 else b""
    except ValueError:
        uuid = b""
    if len(uuid) != 16 or uuid_to_str(uuid)[:21] != text[:21]:
        raise ValueError(f"{text!r} is not a UUID of 22 base64 characters")
    return uuid


def new_uuid(rng: Random) -> bytes:
    """Return a random UUID (version 4). Its text form does not begin with a dash, because command lines would parse that as an option."""
    while True:
        raw = bytearray(rng.getrandbits(128).to_bytes(16, "big"))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        if raw[0] >> 2 != 62:
            return bytes(raw)
