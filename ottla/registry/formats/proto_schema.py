"""Protobuf schemas are parsed from a .proto text or a base64 FileDescriptorProto, printed, normalized and compared."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2

from ottla.registry.formats import proto_compatibility, proto_rules
from ottla.registry.formats.parsed import InvalidSchema, ParsedSchema
from ottla.registry.formats.proto_descriptor import DEFAULT_NAME, sorted_descriptor, to_descriptor
from ottla.registry.formats.proto_from_descriptor import decode_base64, from_descriptor
from ottla.registry.formats.proto_nodes import File, declared_messages
from ottla.registry.formats.proto_normal import NormalNames
from ottla.registry.formats.proto_parser import parse_proto
from ottla.registry.formats.proto_pool import built_in, make_pool
from ottla.registry.formats.proto_text import Printer


class ProtobufSchema:
    """A file of messages. Its imports are in `dependencies`, or built in."""

    kind = "PROTOBUF"

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        self.file = _read(text)
        self._texts = dependencies
        self._dependencies = {name: _read(row) for name, row in dependencies.items()}

    @cached_property
    def canonical(self) -> str:
        return Printer().print(self.file)

    def normalized(self) -> str:
        return Printer(NormalNames(self.file.package, self.types())).print(self.file)

    def formatted(self, name: str) -> str:
        if name.lower() == "serialized":
            return base64.b64encode(self.descriptor().SerializeToString()).decode()
        return self.canonical

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        found = proto_compatibility.compare(writer.file, writer.types(), self.file, self.types())
        return [row.text for row in found if row.kind not in proto_compatibility.COMPATIBLE]

    def check(self) -> None:
        proto_rules.check_file(self.file)
        made = self.descriptor()
        proto_rules.check_descriptor(made)
        for text in (self.canonical, self.normalized()):
            again = ProtobufSchema(text, self._texts)
            if sorted_descriptor(again.descriptor()) != sorted_descriptor(made) or text not in (
                again.canonical,
                again.normalized(),
            ):
                raise InvalidSchema("the schema would be kept as another one than was sent")

    def message_name(self, indexes: Sequence[int]) -> str:
        """Return the full name of the message at a path: an index in the file, and then one within each message.

        Raises:
            IndexError: there is none.
        """
        elements, names = self.file.elements, [self.file.package] if self.file.package else []
        for index in indexes:
            node = declared_messages(elements)[index]
            elements = node.elements
            names.append(node.name)
        return ".".join(names)

    def message_indexes(self, name: str) -> list[int] | None:
        """Return the path of a message by its full name ("" means the first one).

        It is the inverse of `message_name`. None: there is no such message.
        """
        prefix = f"{self.file.package}." if self.file.package else ""
        waiting: deque[tuple[list[int], str, Any]] = deque([([], prefix, self.file.elements)])
        while waiting:
            place, scope, elements = waiting.popleft()
            for index, node in enumerate(declared_messages(elements)):
                if name in ("", scope + node.name):
                    return [*place, index]
                waiting.append(([*place, index], f"{scope}{node.name}.", node.elements))
        return None

    def types(self) -> proto_compatibility.ProtoTypes:
        """Return the types that this file can name: its own, and those of all its imports."""
        return proto_compatibility.ProtoTypes(self.file, {**self._built_in(), **self._dependencies})

    def pool(self) -> Any:
        """Return a pool of descriptors. The file is DEFAULT_NAME in it."""
        needed = {name: to_descriptor(row, name) for name, row in self._dependencies.items()}
        return make_pool(to_descriptor(self.file, DEFAULT_NAME), needed)

    def descriptor(self) -> descriptor_pb2.FileDescriptorProto:
        """Return the descriptor with all types resolved."""
        made = descriptor_pb2.FileDescriptorProto()
        self.pool().FindFileByName(DEFAULT_NAME).CopyToProto(made)
        _keep_written(made, to_descriptor(self.file, DEFAULT_NAME))
        return made

    def _built_in(self) -> dict[str, File]:
        """Return the imported files that are built in."""
        found: dict[str, File] = {}
        waiting = [name for row in (self.file, *self._dependencies.values()) for name in row.imports]
        while waiting:
            name = waiting.pop()
            made = built_in(name) if name not in found and name not in self._dependencies else None
            if made is not None:
                found[name] = from_descriptor(made)
                waiting += made.dependency
        return found


def _keep_written(made: Any, written: Any) -> None:
    """Set defaults as protoc writes them, because the library gives 9.9999999999999995e-08 for 1e-07; and set options as they
    were.
    """
    waiting = [(made, written)]
    while waiting:
        resolved, source = waiting.pop()
        is_file = isinstance(resolved, descriptor_pb2.FileDescriptorProto)
        rows = list(zip(resolved.extension, source.extension, strict=True))
        if not is_file:
            if source.HasField("options"):
                resolved.options.CopyFrom(source.options)
            else:
                resolved.ClearField("options")
            rows += zip(resolved.field, source.field, strict=True)
        for field, given in rows:
            if given.HasField("default_value"):
                field.default_value = given.default_value
        name = "message_type" if is_file else "nested_type"
        waiting += zip(getattr(resolved, name), getattr(source, name), strict=True)


def _read(text: str) -> File:
    """Return the file in a text, or in a base64 descriptor."""
    made = decode_base64(text)
    return parse_proto(text) if made is None else from_descriptor(made)
