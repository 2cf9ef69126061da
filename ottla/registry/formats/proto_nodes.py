"""The nodes of a .proto file: its declarations in the order of the text, without comments.

Numbers of fields, values and ranges are integers. Options keep their values as written, because the definition of a custom
option is in another file: a `Number` keeps its digits, a string is the bytes that its literals stand for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.registry.formats.proto_tokens import integer

TAG_MAX = (1 << 29) - 1
ENUM_MAX = (1 << 31) - 1
ENUM_MIN = -(1 << 31)

Element = Any  # the nodes below, which need no common class


class ProtoRange(NamedTuple):
    """A range of `reserved` or `extensions`, with both ends.

    The last number of `to max` depends on the kind of the declaration.
    """

    first: int
    last: int
    #: Whether a range with one number was written as `9 to 9`.
    is_spelled: bool = False

    def plain(self) -> ProtoRange:
        return ProtoRange(self.first, self.last)


class Number(NamedTuple):
    """A number of an option: its digits as they were written, and its sign."""

    text: str

    @property
    def value(self) -> int | float:
        digits = self.text.removeprefix("-")
        sign = -1 if digits != self.text else 1
        # A decimal integer with more than 64 bits has the type double.
        is_integer = len(digits) <= 20 if digits.isdecimal() else digits[:2] in ("0x", "0X")
        return sign * (integer(digits) if is_integer else float(digits))

    @property
    def real(self) -> float:
        """Return the value for a field of type double, with the sign of zero."""
        return math.copysign(self.value, -1 if self.text.startswith("-") else 1)


class Identifier(NamedTuple):
    """A word as a value: of an enum, true, false, inf, nan; or -inf, -nan."""

    name: str


class Literal(NamedTuple):
    """A message as a value, field by field. Names of extensions and of types for Any stand in brackets."""

    fields: tuple[tuple[str, Any], ...]


#: bytes stand for a string: the contents of its literals, joined.
Value = Number | Identifier | Literal | bytes | list[Any]


@dataclass(slots=True)
class Option:
    name: str
    value: Value


@dataclass(slots=True)
class Package:
    name: str


@dataclass(slots=True)
class Import:
    """An import, whose `kind` is "", public, weak or option."""

    name: str
    kind: str = ""


@dataclass(slots=True)
class ProtoField:
    """A field, also one of a oneof or an extension. `label` is "", optional, required or repeated."""

    name: str
    number: int
    type: str
    label: str = ""
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class MapField:
    name: str
    number: int
    key_type: str
    value_type: str
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoGroup:
    """A group: a field and its message in one declaration."""

    name: str
    number: int
    label: str = ""
    options: list[Option] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)


@dataclass(slots=True)
class OneOf:
    name: str
    elements: list[Element] = field(default_factory=list)


@dataclass(slots=True)
class Reserved:
    """The reserved numbers and names of a message or an enum. Names are identifiers in editions, and strings before."""

    ranges: list[ProtoRange]
    names: list[str]


@dataclass(slots=True)
class ExtensionRange:
    ranges: list[ProtoRange]
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class EnumValue:
    name: str
    number: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Enum:
    """An enum. Its `visibility` is "", export or local (edition 2024), as with a message."""

    name: str
    elements: list[Element] = field(default_factory=list)
    visibility: str = ""


@dataclass(slots=True)
class Extension:
    type_name: str
    elements: list[Element] = field(default_factory=list)


@dataclass(slots=True)
class Message:
    name: str
    elements: list[Element] = field(default_factory=list)
    visibility: str = ""


@dataclass(slots=True)
class Method:
    name: str
    input_type: str
    output_type: str
    input_stream: bool = False
    output_stream: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class Service:
    name: str
    elements: list[Element] = field(default_factory=list)


@dataclass(slots=True)
class File:
    """A file, whose `syntax` is "", proto2 or proto3; a file with an `edition` has none."""

    syntax: str = ""
    edition: str = ""
    elements: list[Element] = field(default_factory=list)

    @property
    def package(self) -> str:
        return "".join(row.name for row in of_kind(self.elements, Package))

    @property
    def imports(self) -> list[str]:
        return [row.name for row in of_kind(self.elements, Import)]


def of_kind(elements: Iterable[Element], *kinds: type) -> list[Any]:
    """Return the elements of these classes, in their order."""
    return [element for element in elements if isinstance(element, kinds)]


def declared_messages(elements: Iterable[Element]) -> list[Any]:
    """Return the messages and groups inside a file or a message, in their order. Values name their type by this order."""
    found = []
    for row in elements:
        if isinstance(row, Message | ProtoGroup):
            found.append(row)
        elif isinstance(row, OneOf | Extension):
            found += of_kind(row.elements, ProtoGroup)
    return found


def map_entry(message: Element) -> tuple[str, str] | None:
    """Return the types of key and value if the message is the entry of a map; None for other messages."""
    if not any(
        row.name == "map_entry" and row.value == Identifier("true") for row in of_kind(message.elements, Option)
    ):
        return None
    types = {row.name: row.type for row in of_kind(message.elements, ProtoField)}
    return types.get("key", "string"), types.get("value", "string")


def is_message_set(elements: Sequence[Element]) -> bool:
    """Return whether a message has the option message_set_wire_format, which allows larger numbers of extensions."""
    return any(
        row.name == "message_set_wire_format" and row.value == Identifier("true") for row in of_kind(elements, Option)
    )
