"""The formatters of kafka-console-consumer: the text that is printed for a record, by the class that --formatter names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.cli.shims.exceptions import PACKAGE
from ottla.cli.shims.tool import Unusable
from ottla.protocol.records.record import Record

#: Returns the text of a key, a value or the value of a header.
Deserialize = Callable[[bytes], bytes]

DEFAULT = "DefaultMessageFormatter"


class Printable(NamedTuple):
    """A record of a partition. `deliveries` is how often a share group has delivered it; None without a share group."""

    partition: int
    record: Record
    deliveries: int | None = None
    #: Whether the broker gave the timestamp (LogAppendTime), and not the producer (CreateTime).
    is_append_time: bool = False


#: Returns the text of a record.
Write = Callable[[Printable], bytes]


class Unreadable(Unusable):
    """A part of a record that cannot be deserialized. `written` is the text of the parts before it, which Kafka has printed by then."""

    def __init__(self, message: str, written: bytes = b"") -> None:
        super().__init__(message)
        self.written = written


_NUMBERS = {"Short": ">h", "Integer": ">i", "Long": ">q", "Float": ">f", "Double": ">d"}


def deserializer(name: str | None) -> Deserialize:
    """Return the function of a class of Kafka's clients, by its name with or without the package.

    Raises:
        Unusable: there is no such class, or it is not supported here.
    """
    short = (name or "StringDeserializer").rpartition(".")[2].removesuffix("Deserializer")
    if short in ("String", "ByteArray", "Bytes", "ByteBuffer"):
        return bytes
    if short in _NUMBERS:
        form = struct.Struct(_NUMBERS[short])

        def number(data: bytes) -> bytes:
            if len(data) != form.size:
                raise _not_deserialized(f"Size of data received by {short}Deserializer is not {form.size}")
            return str(form.unpack(data)[0]).encode()

        return number
    if short == "UUID":
        return _uuid
    if short == "Boolean":
        return _boolean
    raise Unusable(f"Class {name} could not be found.")


def _not_deserialized(message: str) -> Unreadable:
    return Unreadable(f"{PACKAGE}SerializationException: {message}")


def _uuid(data: bytes) -> bytes:
    try:
        return str(UUID(data.decode())).encode()
    except ValueError:  # also for invalid UTF-8
        raise _not_deserialized("Error parsing data into UUID") from None


def _boolean(data: bytes) -> bytes:
    if len(data) != 1:
        raise _not_deserialized("Size of data received by BooleanDeserializer is not 1")
    if data not in (b"\x00", b"\x01"):
        raise _not_deserialized(f"Unexpected byte received by BooleanDeserializer: {data[0]}")
    return b"true" if data == b"\x01" else b"false"


def formatter(
    properties: dict[str, str],
    name: str | None = None,
    key_deserializer: str | None = None,
    value_deserializer: str | None = None,
) -> Write:
    """Return the function of a formatter class.

    Raises:
        Unusable: there is no such class here.
    """
    short = (name or DEFAULT).rpartition(".")[2]
    if short == "NoOpMessageFormatter":
        return lambda _: b""
    if short not in (DEFAULT, "LoggingMessageFormatter"):
        raise Unusable(f"Class {name} could not be found.")
    key = deserializer(key_deserializer or properties.get("key.deserializer"))
    value = deserializer(value_deserializer or properties.get("value.deserializer"))
    header = deserializer(properties.get("headers.deserializer"))
    return _default_formatter(properties, key, value, header)


def _default_formatter(properties: dict[str, str], key: Deserialize, value: Deserialize, header: Deserialize) -> Write:
    def on(name: str, default: str = "false") -> bool:
        return properties.get(name, default).strip().lower() == "true"

    key_separator = properties.get("key.separator", "\t").encode()
    line_separator = properties.get("line.separator", "\n").encode()
    headers_separator = properties.get("headers.separator", ",").encode()
    null = properties.get("null.literal", "null").encode()
    # As in Kafka's formatter, a null is its literal, deserialized: its four letters are a valid Integer, but no valid Long.
    parts: list[Write] = []
    if on("print.timestamp"):
        kinds = ("CreateTime", "LogAppendTime")
        parts.append(lambda row: f"{kinds[row.is_append_time]}:{row.record.timestamp}".encode())
    if on("print.partition"):
        parts.append(lambda row: f"Partition:{row.partition}".encode())
    if on("print.offset"):
        parts.append(lambda row: f"Offset:{row.record.offset}".encode())
    if on("print.delivery"):
        absent = "NOT_PRESENT"
        parts.append(lambda row: f"Delivery:{absent if row.deliveries is None else row.deliveries}".encode())
    if on("print.epoch"):
        parts.append(lambda _: b"Epoch:NOT_PRESENT")
    if on("print.headers"):

        def headers(row: Printable) -> bytes:
            rows = [name.encode() + b":" + header(null if data is None else data) for name, data in row.record.headers]
            return headers_separator.join(rows) or b"NO_HEADERS"

        parts.append(headers)
    if on("print.key"):
        parts.append(lambda row: key(null if row.record.key is None else row.record.key))
    if on("print.value", "true"):
        parts.append(lambda row: value(null if row.record.value is None else row.record.value))

    def write(row: Printable) -> bytes:
        written: list[bytes] = []
        try:
            written.extend(part(row) for part in parts)
        except Unreadable as wrong:
            raise Unreadable(str(wrong), b"".join(text + key_separator for text in written)) from None
        return key_separator.join(written) + line_separator

    return write
