"""The frame of the records in the coordinators' internal topics.

Key: record type as int16, then the key's fields (always version 0). Value: version as int16, then the fields. A record
without a value deletes its key. The types and classes of a topic are a table beside its declarations.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import MalformedMessage, ProtocolError
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.schema import info_of

T = TypeVar("T")

RecordTypes: TypeAlias = dict[int, tuple[type[object], type[object]]]


class UnknownRecord(ProtocolError):
    """A record was written by a newer coordinator. Kafka skips unknown types and fails to load on unknown versions."""


def encode_key(key: Any) -> bytes:
    """Returns the bytes of a record's key."""
    pieces: Pieces = [key.__message__.key.to_bytes(2, "big")]
    encoder(key.__plain__, 0)(key, pieces)
    return b"".join(pieces)


def encode_value(value: Any, version: int) -> bytes:
    """Returns the bytes of a record's value."""
    pieces: Pieces = [version.to_bytes(2, "big")]
    encoder(value.__plain__, version)(value, pieces)
    return b"".join(pieces)


def decode_key(types: RecordTypes, data: Buffer) -> object:
    """Returns the key object of a record; UnknownRecord for types not in the table."""
    record_type = _int16(data)
    classes = types.get(record_type)
    if classes is None:
        raise UnknownRecord(f"record type {record_type}")
    return _body(classes[0], 0, data)


def decode_value(types: RecordTypes, key: Any, data: Buffer) -> object:
    """Returns the value object that goes with a key object."""
    version = _int16(data)
    cls = types[key.__message__.key][1]
    if version not in info_of(cls).versions:
        raise UnknownRecord(f"{cls.__name__} v{version}")
    return _body(cls, version, data)


def _int16(data: Buffer) -> int:
    if len(data) < 2:
        raise MalformedMessage("coordinator record: cut short")
    return int.from_bytes(data[:2], "big", signed=True)


def _body(cls: type[T], version: int, data: Buffer) -> T:
    obj, pos = decoder(cls, version)(data, 2, len(data))
    if pos != len(data):
        raise MalformedMessage(f"{cls.__name__} v{version}: {len(data) - pos} bytes left over")
    return obj
