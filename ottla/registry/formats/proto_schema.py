"""Protobuf schemas: parsed from a .proto text or a base64 FileDescriptorProto, printed, normalized and compared."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from google.protobuf import descriptor_pb2
from proto_schema_parser import ast

from ottla.registry.formats import proto_compatibility
from ottla.registry.formats.parsed import ParsedSchema
from ottla.registry.formats.proto_descriptor import DEFAULT_NAME, decode_base64, from_descriptor, to_descriptor
from ottla.registry.formats.proto_pool import built_in, make_pool
from ottla.registry.formats.proto_text import Printer, parse_proto


class ProtobufSchema:
    """A file of messages. What it imports is in `dependencies`, or built in."""

    kind = "PROTOBUF"

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        self.file = _read(text)
        self._dependencies = {name: _read(row) for name, row in dependencies.items()}

    @cached_property
    def canonical(self) -> str:
        return Printer().print(self.file)

    def normalized(self) -> str:
        types = self.types()
        package = proto_compatibility.package_of(self.file)

        def resolve(scope: tuple[str, ...], name: str) -> str:
            found = types.find(package, scope, name)
            return "." + found.name if found is not None else name

        return Printer(resolve).print(self.file)

    def formatted(self, name: str) -> str:
        if name.lower() == "serialized":
            return base64.b64encode(self.descriptor().SerializeToString()).decode()
        return self.canonical

    def incompatible(self, writer: ParsedSchema) -> list[str]:
        assert isinstance(writer, ProtobufSchema)
        found = proto_compatibility.compare(writer.file, writer.types(), self.file, self.types())
        return [row.text for row in found if row.kind not in proto_compatibility.COMPATIBLE]

    def check(self) -> None:
        self.pool()

    def types(self) -> proto_compatibility.Types:
        """Return the types that this file can name: its own, and those of all that it imports."""
        return proto_compatibility.Types(self.file, {**self._built_in(), **self._dependencies})

    def pool(self) -> Any:
        """Return a pool of descriptors, in which the file is DEFAULT_NAME."""
        needed = {name: to_descriptor(row, name) for name, row in self._dependencies.items()}
        return make_pool(to_descriptor(self.file, DEFAULT_NAME), needed)

    def descriptor(self) -> descriptor_pb2.FileDescriptorProto:
        """Return the descriptor with all types resolved."""
        made = descriptor_pb2.FileDescriptorProto()
        self.pool().FindFileByName(DEFAULT_NAME).CopyToProto(made)
        return made

    def _built_in(self) -> dict[str, ast.File]:
        """Return the files that come with the registry, of those that are imported."""
        found: dict[str, ast.File] = {}
        waiting = [name for row in (self.file, *self._dependencies.values()) for name in imports_of(row)]
        while waiting:
            name = waiting.pop()
            made = built_in(name) if name not in found and name not in self._dependencies else None
            if made is not None:
                found[name] = from_descriptor(made)
                waiting += made.dependency
        return found


def imports_of(file: ast.File) -> list[str]:
    return [row.name for row in file.file_elements if isinstance(row, ast.Import)]


def _read(text: str) -> ast.File:
    """Return the file of a text, or of a descriptor in base64."""
    made = decode_base64(text)
    return parse_proto(text) if made is None else from_descriptor(made)
