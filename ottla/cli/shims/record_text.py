"""The formatters of kafka-console-consumer: what is printed of a record, by the class that --formatter names."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from ottla.cli.shims.exceptions import PACKAGE
from ottla.cli.shims.tool import Unusable
from ottla.protocol.records.record import Record

#: Returns the text of a key, a value or the value of a header.
Deserialize = Callable[[bytes], bytes]

DEFAULT = "DefaultMessageFormatter"


class Write(Protocol):
    """Returns the text of a record of a partition; `deliveries` is how often a share group has delivered it."""

    def __call__(self, topic: str, index: int, record: Record, deliveries: int | None = None) -> bytes: ...


_NUMBERS = {"Short": ">h", "Integer": ">i", "Long": ">q", "Float": ">f", "Double": ">d"}


def deserializer(name: str | None) -> Deserialize:
    """Returns the function of a class of Kafka's clients, by its name with or without the package.

    Raises:
        Unusable: there is no such class, or not here.
    """
    short = (name or "StringDeserializer").rpartition(".")[2].removesuffix("Deserializer")
    if short in ("String", "ByteArray", "Bytes", "ByteBuffer"):
        return bytes
    if short in _NUMBERS:
        form = struct.Struct(_NUMBERS[short])

        def number(data: bytes) -> bytes:
            if len(data) != form.size:
                wrong = f"Size of data received by {short}Deserializer is not {form.size}"
                raise Unusable(f"{PACKAGE}SerializationException: {wrong}")
            return str(form.unpack(data)[0]).encode()

        return number
    if short == "UUID":
        return lambda data: str(UUID(data.decode())).encode()
    if short == "Boolean":
        return lambda data: b"true" if data == b"\x01" else b"false"
    raise Unusable(f"Class {name} could not be found.")


def formatter(
    properties: dict[str, str],
    name: str | None = None,
    key_deserializer: str | None = None,
    value_deserializer: str | None = None,
) -> Write:
    """Returns the function of a formatter class.

    Raises:
        Unusable: there is no such class here.
    """
    short = (name or DEFAULT).rpartition(".")[2]
    if short == "NoOpMessageFormatter":
        return lambda topic, index, record, deliveries=None: b""
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
    parts: list[Callable[[int, Record, int | None], bytes]] = []
    if on("print.timestamp"):
        parts.append(lambda index, record, _: f"CreateTime:{record.timestamp}".encode())
    if on("print.partition"):
        parts.append(lambda index, record, _: f"Partition:{index}".encode())
    if on("print.offset"):
        parts.append(lambda index, record, _: f"Offset:{record.offset}".encode())
    if on("print.delivery"):
        parts.append(lambda _, __, count: f"Delivery:{'NOT_PRESENT' if count is None else count}".encode())
    if on("print.epoch"):
        parts.append(lambda index, record, _: b"Epoch:NOT_PRESENT")
    if on("print.headers"):

        def headers(index: int, record: Record, _: int | None) -> bytes:
            rows = [name.encode() + b":" + (null if data is None else header(data)) for name, data in record.headers]
            return headers_separator.join(rows) or b"NO_HEADERS"

        parts.append(headers)
    if on("print.key"):
        parts.append(lambda index, record, _: null if record.key is None else key(record.key))
    if on("print.value", "true"):
        parts.append(lambda index, record, _: null if record.value is None else value(record.value))

    def write(topic: str, index: int, record: Record, deliveries: int | None = None) -> bytes:
        return key_separator.join(part(index, record, deliveries) for part in parts) + line_separator

    return write
