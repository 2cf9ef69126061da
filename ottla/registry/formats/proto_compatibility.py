"""The compatible changes of a Protobuf file, by Confluent's rules, which compare numbers and kinds, and hardly ever names.

The table COMPATIBLE has the verdicts; the walk below only finds differences. A field is found by its number anywhere in the
message: a field may leave a oneof, but two fields that were independent must not get into the same one. Fields of messages are
compared through the message that they name, also where it was imported.

Reference: the tests of Confluent's schema registry (protobuf-provider, diff-schema-examples.json), which tests/registry has as a
table of pairs and verdicts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ottla.registry.formats.parsed import Difference
from ottla.registry.formats.proto_nodes import (
    Enum,
    EnumValue,
    Extension,
    File,
    MapField,
    Message,
    OneOf,
    ProtoField,
    ProtoGroup,
    map_entry,
    of_kind,
)

#: After these differences, older data can still be read.
COMPATIBLE = frozenset(
    (
        "MESSAGE_ADDED",
        "MESSAGE_MOVED",
        "ENUM_ADDED",
        "ENUM_REMOVED",
        "ENUM_CONST_ADDED",
        "ENUM_CONST_CHANGED",
        "ENUM_CONST_REMOVED",
        "FIELD_ADDED",
        "FIELD_REMOVED",
        "FIELD_NAME_CHANGED",
        "FIELD_STRING_OR_BYTES_LABEL_CHANGED",
        "ONEOF_ADDED",
        "ONEOF_REMOVED",
        "ONEOF_FIELD_ADDED",
        "ONEOF_FIELD_MOVED_TO_TOP_LEVEL",
    )
)
#: The sentences about the others (Confluent's). `reader` and `writer` become "new" and "old", or the reverse.
TEXTS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {reader} schema does not match its kind in the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {reader} schema does not match its type in the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {reader} schema does not match its label in the {writer} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' in the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {reader} schema are outside a oneof in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {reader} schema is outside an existing oneof in the {writer} schema",
}
#: Groups of scalars that can read each other's encoding. Enums count as numbers.
SCALAR_KINDS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "text"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
Scope = tuple[str, ...]


@dataclass(slots=True)
class ProtoMember:
    """A field of a message: its type (a map has two), and its oneof."""

    name: str
    number: int
    type: str
    label: str = ""
    key: str | None = None
    oneof: str | None = None
    is_group: bool = False


@dataclass(slots=True)
class ProtoType:
    """A message or enum with its full name, its package, and the declarations inside."""

    name: str
    package: str
    node: Any
    is_enum: bool = False
    members: dict[int, ProtoMember] = field(default_factory=dict)
    oneofs: dict[str, list[int]] = field(default_factory=dict)
    #: The key and value, if the message is a map's entry (option map_entry).
    entry: tuple[str, str] | None = None

    @property
    def local_name(self) -> str:
        return self.name.removeprefix(self.package + ".") if self.package else self.name


class ProtoTypes:
    """All types that a file can name, by their full names."""

    def __init__(self, file: File, imported: Mapping[str, File]) -> None:
        self._found: dict[str, ProtoType] = {}
        self._extensions: dict[str, ProtoMember] = {}
        for row in (*imported.values(), file):
            self._add(row.package, (), row.elements)

    def find(self, package: str, scope: Scope, name: str) -> ProtoType | None:
        """Find a type as Protobuf does: first in the innermost scope, then in the outer ones."""
        name = _innermost(self._found, package, scope, name)
        return self._found.get(name)

    def find_extension(self, package: str, scope: Scope, name: str) -> tuple[str, ProtoMember] | None:
        """Find the field that extends a message, such as an option, and its full name."""
        name = _innermost(self._extensions, package, scope, name)
        return (name, self._extensions[name]) if name in self._extensions else None

    def _add(self, package: str, scope: Scope, elements: Iterable[Any]) -> None:
        for node in of_kind(elements, Message, Enum, ProtoGroup):
            inner = (*scope, node.name)
            name = ".".join([package, *inner] if package else inner)
            self._found[name] = _type(name, package, node)
            if not isinstance(node, Enum):
                self._add(package, inner, node.elements)
        for outer in of_kind(elements, OneOf, Extension):  # groups inside them are messages of this scope
            self._add(package, scope, of_kind(outer.elements, ProtoGroup))
        for outer in of_kind(elements, Extension):
            for row in of_kind(outer.elements, ProtoField, ProtoGroup):
                self._extensions[".".join([*([package] if package else []), *scope, row.name])] = _member(row, None)


def _innermost(known: Container[str], package: str, scope: Scope, name: str) -> str:
    """Return the full name for a name in a scope. The name may be unknown."""
    if name.startswith("."):
        return name[1:]
    around = [*(package.split(".") if package else []), *scope]
    names = (".".join([*around[:length], name]) for length in range(len(around), 0, -1))
    return next((full for full in names if full in known), name)


def _type(name: str, package: str, node: Any) -> ProtoType:
    made = ProtoType(name, package, node, isinstance(node, Enum))
    if made.is_enum:
        return made
    for row in node.elements:
        if isinstance(row, OneOf):
            made.oneofs[row.name] = []
            for part in of_kind(row.elements, ProtoField, ProtoGroup):
                made.oneofs[row.name].append(part.number)
                made.members[part.number] = _member(part, row.name)
        elif isinstance(row, ProtoField | MapField | ProtoGroup):
            made.members[row.number] = _member(row, None)
    made.entry = map_entry(node)
    return made


def _member(row: ProtoField | MapField | ProtoGroup, oneof: str | None) -> ProtoMember:
    if isinstance(row, MapField):
        return ProtoMember(row.name, row.number, row.value_type, key=row.key_type)
    if isinstance(row, ProtoGroup):
        return ProtoMember(row.name.lower(), row.number, row.name, row.label, oneof=oneof, is_group=True)
    return ProtoMember(row.name, row.number, row.type, row.label, oneof=oneof)


# -- The comparison --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Side:
    """One of the two files during the walk: the scopes in which names are looked up."""

    types: ProtoTypes
    package: str

    def find(self, scope: Scope, name: str) -> ProtoType | None:
        return self.types.find(self.package, scope, name)


class _Comparison:
    """Collects the differences of two files. A recursive message is compared once on each path to it."""

    def __init__(self, old: _Side, new: _Side, scope: Scope = (), entered: frozenset[int] = frozenset()) -> None:
        self.old = old
        self.new = new
        self.found: list[Difference] = []
        self._scope = scope
        self._path: list[str] = list(scope)
        self._entered = entered

    def elements(self, old: Iterable[Any], new: Iterable[Any]) -> None:
        """Compare the messages and enums inside two files or two messages."""
        old_rows, new_rows = list(old), list(new)
        olds = {row.name: index for index, row in enumerate(of_kind(old_rows, Message))}
        news = {row.name: index for index, row in enumerate(of_kind(new_rows, Message))}
        for name in dict.fromkeys([*olds, *news]):
            with self._inside(name):
                if name not in news:
                    self._unless_entry(self.old, name, "MESSAGE_REMOVED")
                elif name not in olds:
                    self._unless_entry(self.new, name, "MESSAGE_ADDED")
                else:
                    self._declared(name)
                    if olds[name] != news[name]:
                        self._add("MESSAGE_MOVED")
        old_enums, new_enums = ({row.name: row for row in of_kind(rows, Enum)} for rows in (old_rows, new_rows))
        for name in dict.fromkeys([*old_enums, *new_enums]):
            with self._inside(name):
                if name not in new_enums:
                    self._add("ENUM_REMOVED")
                elif name not in old_enums:
                    self._add("ENUM_ADDED")
                else:
                    self._enum(old_enums[name], new_enums[name])

    def _unless_entry(self, side: _Side, name: str, kind: str) -> None:
        found = side.find(self._scope, name)
        if found is not None and found.entry is None:
            self._add(kind)

    def _declared(self, name: str) -> None:
        """Compare the two messages of the present scope."""
        old, new = (side.types.find(side.package, self._scope[:-1], name) for side in (self.old, self.new))
        if old is not None and new is not None and not old.is_enum and not new.is_enum:
            self.message(old, new)

    def message(self, old: ProtoType, new: ProtoType) -> None:
        if id(old.node) not in self._entered:
            before, self._entered = self._entered, self._entered | {id(old.node)}
            self._oneofs(old, new)
            for number in sorted({*old.members, *new.members}):
                self._member(old, new, number)
            self._entered = before
            self.elements(old.node.elements, new.node.elements)

    def _oneofs(self, old: ProtoType, new: ProtoType) -> None:
        for name, numbers in new.oneofs.items():
            groups, moved_in = set(), 0
            for number in numbers:
                was = old.members.get(number)
                if was is not None:
                    groups.add(("oneof", was.oneof) if was.oneof is not None else ("field", str(number)))
                    moved_in += was.oneof is None
            if len(groups) > 1:
                with self._at(name):
                    self._add("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if moved_in > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF")
        for name in sorted({*old.oneofs, *new.oneofs}):
            if (name in old.oneofs) != (name in new.oneofs):
                with self._at(name):
                    self._add("ONEOF_REMOVED" if name in old.oneofs else "ONEOF_ADDED")

    def _member(self, old: ProtoType, new: ProtoType, number: int) -> None:
        was, now = old.members.get(number), new.members.get(number)
        if now is None:
            assert was is not None
            self._removed(old, new, was)
        elif was is None:
            with self._at(*([now.oneof] if now.oneof is not None else []), str(number)):
                self._add("ONEOF_FIELD_ADDED" if now.oneof is not None else _required(now, "ADDED"))
        else:
            if was.oneof is not None and now.oneof is None:
                with self._at(str(number)):
                    self._add("ONEOF_FIELD_MOVED_TO_TOP_LEVEL")
            with self._at(*([now.oneof] if now.oneof is not None else []), str(number)):
                if was.name != now.name:
                    self._add("FIELD_NAME_CHANGED")
                self._types(was, now)

    def _removed(self, old: ProtoType, new: ProtoType, was: ProtoMember) -> None:
        if was.oneof is None:
            with self._at(str(was.number)):
                self._add(_required(was, "REMOVED"))
        # A oneof may be removed together with all its members.
        elif was.oneof in new.oneofs or any(number in new.members for number in old.oneofs[was.oneof]):
            with self._at(was.oneof, str(was.number)):
                self._add("ONEOF_FIELD_REMOVED")

    def _types(self, was: ProtoMember, now: ProtoMember) -> None:
        """Compare the types of a field, or of a map's key or value."""
        was, now = self._as_map(self.old, was), self._as_map(self.new, now)
        old_kind, new_kind = self._kind(self.old, was), self._kind(self.new, now)
        if old_kind != new_kind:
            self._add("FIELD_KIND_CHANGED")
        elif old_kind == "map":
            for old_type, new_type in ((was.key, now.key), (was.type, now.type)):
                self._types(ProtoMember("", 0, old_type or ""), ProtoMember("", 0, new_type or ""))
        elif old_kind == "scalar":
            self._scalars(was, now)
        else:
            self._messages(was, now)

    def _as_map(self, side: _Side, member: ProtoMember) -> ProtoMember:
        """Return the type of a map field: descriptors have maps as repeated fields of a message of entries."""
        found = side.find(self._scope, member.type) if member.key is None and member.type not in SCALAR_KINDS else None
        if found is None or found.entry is None:
            return member
        return ProtoMember(member.name, member.number, found.entry[1], key=found.entry[0])

    def _kind(self, side: _Side, member: ProtoMember) -> str:
        if member.key is not None:
            return "map"
        if member.is_group:
            return "group"
        if member.type in SCALAR_KINDS:
            return "scalar"
        found = side.find(self._scope, member.type)
        return "scalar" if found is not None and found.is_enum else "message"

    def _scalars(self, was: ProtoMember, now: ProtoMember) -> None:
        old_kind = SCALAR_KINDS.get(was.type, SCALAR_KINDS["enum"])
        if old_kind != SCALAR_KINDS.get(now.type, SCALAR_KINDS["enum"]):
            self._add("FIELD_SCALAR_KIND_CHANGED")
        elif was.label and now.label and was.label != now.label:
            self._add("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if old_kind == "text" else "FIELD_NUMERIC_LABEL_CHANGED")

    def _messages(self, was: ProtoMember, now: ProtoMember) -> None:
        old, new = self.old.find(self._scope, was.type), self.new.find(self._scope, now.type)
        if old is None or new is None:
            if was.type != now.type:
                self._add("FIELD_NAMED_TYPE_CHANGED")
            return
        if old.local_name != new.local_name:
            self._add("FIELD_NAMED_TYPE_CHANGED")
            return
        inner = _Comparison(
            _Side(self.old.types, old.package),
            _Side(self.new.types, new.package),
            tuple(old.local_name.split(".")),
            self._entered,
        )
        inner.message(old, new)
        self.found += inner.found
        if any(row.kind not in COMPATIBLE for row in inner.found):
            self._add("FIELD_NAMED_TYPE_CHANGED")

    def _enum(self, old: Enum, new: Enum) -> None:
        olds, news = ({row.number: row.name for row in of_kind(enum.elements, EnumValue)} for enum in (old, new))
        for number in sorted({*olds, *news}):
            with self._at(str(number)):
                if number not in news:
                    self._add("ENUM_CONST_REMOVED")
                elif number not in olds:
                    self._add("ENUM_CONST_ADDED")
                elif olds[number] != news[number]:
                    self._add("ENUM_CONST_CHANGED")

    def _add(self, kind: str) -> None:
        path = "#/" + "/".join(self._path)
        text = TEXTS.get(kind, "").replace("{path}", path)
        self.found.append(Difference(kind, path, f'{{errorType:"{kind}", description:"{text}"}}'))

    @contextmanager
    def _at(self, *path: str) -> Iterator[None]:
        self._path += path
        yield
        del self._path[len(self._path) - len(path) :]

    @contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        with self._at(name):
            before, self._scope = self._scope, (*self._scope, name)
            yield
            self._scope = before


def compare(old: File, old_types: ProtoTypes, new: File, new_types: ProtoTypes) -> list[Difference]:
    """Return the differences of two versions of a file, including the compatible ones."""
    comparison = _Comparison(_Side(old_types, old.package), _Side(new_types, new.package))
    if old.package != new.package:
        comparison._add("PACKAGE_CHANGED")
    comparison.elements(old.elements, new.elements)
    return comparison.found


def _required(member: ProtoMember, what: str) -> str:
    return f"REQUIRED_FIELD_{what}" if member.label == "required" else f"FIELD_{what}"
