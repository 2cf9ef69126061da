"""Pools of descriptors: a schema with all the files that it needs. Some of these are built in.

A schema may import the built-in files without a reference, as in Confluent's registry.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping
from functools import cache

from google.protobuf import descriptor_pb2, descriptor_pool

from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_descriptor import to_descriptor
from ottla.registry.formats.proto_parser import parse_proto

#: The built-in files of every registry, by the folder of their import and the package that contains them.
LIBRARY_FOLDERS = {"google/protobuf/": "google.protobuf.", "google/type/": "google.type."}
META = """syntax = "proto3";
package confluent;

import "google/protobuf/descriptor.proto";

message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions {
  Meta file_meta = 1088;
}
extend google.protobuf.MessageOptions {
  Meta message_meta = 1088;
}
extend google.protobuf.FieldOptions {
  Meta field_meta = 1088;
}
extend google.protobuf.EnumOptions {
  Meta enum_meta = 1088;
}
extend google.protobuf.EnumValueOptions {
  Meta enum_value_meta = 1088;
}
"""
DECIMAL = """syntax = "proto3";
package confluent.type;

message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
"""
VARIANT = """syntax = "proto3";
package confluent.type;

message Variant {
  bytes metadata = 1;
  bytes value = 2;
}
"""
OWN_FILES = {
    "confluent/meta.proto": META,
    "confluent/type/decimal.proto": DECIMAL,
    "confluent/type/variant.proto": VARIANT,
}


@cache
def built_in(name: str) -> descriptor_pb2.FileDescriptorProto | None:
    """Return a built-in file, which schemas may import without a reference; None if there is no such file."""
    if name in OWN_FILES:
        return to_descriptor(parse_proto(OWN_FILES[name]), name)
    for folder, package in LIBRARY_FOLDERS.items():
        stem = name.removeprefix(folder).removesuffix(".proto")
        if name.startswith(folder) and stem.isidentifier():
            try:
                module = importlib.import_module(f"{package}{stem}_pb2")
            except ImportError:
                return None
            return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    return None


def make_pool(
    file: descriptor_pb2.FileDescriptorProto, dependencies: Mapping[str, descriptor_pb2.FileDescriptorProto]
) -> descriptor_pool.DescriptorPool:
    """Return a pool with the file and all files that it needs.

    Raises:
        InvalidSchema: a type is missing, or the file itself is invalid.
    """
    pool = descriptor_pool.DescriptorPool()
    added: set[str] = set()
    entered: set[str] = set()

    def add(row: descriptor_pb2.FileDescriptorProto) -> None:
        if row.name in added:
            return
        if row.name in entered:
            raise InvalidSchema(f"file {row.name} imports itself")
        entered.add(row.name)
        found = {name: dependencies.get(name) or built_in(name) for name in (*row.dependency, *row.option_dependency)}
        for needed in filter(None, found.values()):
            add(needed)
        if missing := [name for name, needed in found.items() if needed is None]:
            row = _without_imports(row, missing)
        try:
            _add(pool, row)
            pool.FindFileByName(row.name)
        except (TypeError, KeyError, ValueError) as fault:
            raise InvalidSchema(_reason(fault)) from None
        added.add(row.name)

    try:
        add(file)
    except RecursionError:
        raise InvalidSchema("the imports are nested too deeply") from None
    return pool


def _without_imports(
    file: descriptor_pb2.FileDescriptorProto, names: Collection[str]
) -> descriptor_pb2.FileDescriptorProto:
    """Return the file without the imports that are missing.

    As in Confluent's registry they may be missing: perhaps they define only custom options.
    """
    made = descriptor_pb2.FileDescriptorProto()
    made.CopyFrom(file)
    for field in ("dependency", "public_dependency", "weak_dependency", "option_dependency"):
        made.ClearField(field)
    kept = [name for name in file.dependency if name not in names]
    made.dependency.extend(kept)
    made.option_dependency.extend(name for name in file.option_dependency if name not in names)
    for source, target in (
        (file.public_dependency, made.public_dependency),
        (file.weak_dependency, made.weak_dependency),
    ):
        target.extend(kept.index(file.dependency[index]) for index in source if file.dependency[index] in kept)
    return made


def _add(pool: descriptor_pool.DescriptorPool, file: descriptor_pb2.FileDescriptorProto) -> None:
    """Add a file, even if its fields have the same name in JSON: proto_rules decides whether that is allowed.

    The library accepts such fields only in messages with an option for that, which `ProtobufSchema.descriptor` removes again.
    """
    try:
        pool.Add(file)
        return
    except TypeError as fault:
        if "json_name" not in str(fault):
            raise
    made = descriptor_pb2.FileDescriptorProto()
    made.CopyFrom(file)
    waiting = list(made.message_type)
    while waiting:
        row = waiting.pop()
        row.options.deprecated_legacy_json_field_conflicts = True
        waiting += row.nested_type
    pool.Add(made)


def _reason(fault: Exception) -> str:
    text = str(fault)
    return text.removeprefix("Couldn't build proto file into descriptor pool: ").strip()
