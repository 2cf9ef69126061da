"""Protobuf's texts: the descriptors that protoc makes of them, and that a stored schema means the same as the sent one.

`data/protoc.json` has texts with one odd feature each, and protoc 31's result for it: a descriptor, or none if it rejects the
text.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from google.api import http_pb2
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.registry import decisions
from ottla.registry.client import PROTOBUF
from ottla.registry.decisions import Asked
from ottla.registry.formats.parsed import InvalidSchema
from ottla.registry.formats.proto_descriptor import sorted_descriptor
from ottla.registry.formats.proto_parser import parse_proto
from ottla.registry.formats.proto_schema import ProtobufSchema
from ottla.registry.formats.proto_text import Printer
from ottla.registry.registry_state import RegistryState
from tests.effort import seeds

TEXTS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/protoc.json").read_text())
VALID = [row for row in TEXTS if row["descriptor"]]
#: protoc leaves out the options of a range of extensions (RETENTION_SOURCE).
NOT_WRITTEN = ("extension-declaration", "ext-range-options", "ext-decl-ok")


def by_name(row: dict[str, Any]) -> str:
    return str(row["name"])


def without_custom(made: Any) -> Any:
    """Return a descriptor without the parts that this registry does not resolve: options of extensions, and default names in
    JSON.
    """
    for field, value in list(made.ListFields()):
        if field.name in ("json_name", "source_code_info"):
            made.ClearField(field.name)
        elif field.name == "options":
            for inner, _ in list(value.ListFields()):
                if inner.is_extension:
                    value.ClearExtension(inner)
            value.DiscardUnknownFields()
            if not value.ByteSize():
                made.ClearField("options")
        elif field.message_type is not None:
            for row in value if field.is_repeated else [value]:
                without_custom(row)
    return made


def file_of(data: bytes) -> descriptor_pb2.FileDescriptorProto:
    made = descriptor_pb2.FileDescriptorProto.FromString(data)
    made.name = ""
    if made.syntax == "proto2":
        made.ClearField("syntax")
    without_custom(made)
    return made


@pytest.mark.parametrize("row", [row for row in VALID if row["name"] not in NOT_WRITTEN], ids=by_name)
def test_a_text_has_the_descriptor_that_protoc_makes_of_it(row: dict[str, Any]) -> None:
    schema = ProtobufSchema(row["text"], {})
    schema.check()
    assert file_of(schema.descriptor().SerializeToString()) == file_of(base64.b64decode(row["descriptor"]))


@pytest.mark.parametrize("row", [row for row in TEXTS if not row["descriptor"]], ids=by_name)
def test_a_text_that_protoc_refuses_is_refused(row: dict[str, Any]) -> None:
    with pytest.raises(InvalidSchema):
        ProtobufSchema(row["text"], {}).check()


def check_kept(text: str, needed: Mapping[str, str] = MappingProxyType({})) -> None:
    """Check that the printed text is accepted, has the same meaning, is printed unchanged, and is the same schema of the
    registry.
    """
    schema = ProtobufSchema(text, needed)
    schema.check()
    made = schema.descriptor()
    for printed in (schema.canonical, schema.normalized()):
        again = ProtobufSchema(printed, needed)
        again.check()
        assert sorted_descriptor(again.descriptor()) == sorted_descriptor(made)
    assert ProtobufSchema(schema.canonical, needed).canonical == schema.canonical
    assert ProtobufSchema(schema.normalized(), needed).normalized() == schema.normalized()
    serialized = ProtobufSchema(schema.formatted("serialized"), needed)
    serialized.check()
    assert sorted_descriptor(serialized.descriptor()) == sorted_descriptor(made)
    state = RegistryState()
    ids = set()
    for kept in (schema.canonical, ProtobufSchema(schema.canonical, needed).canonical):
        version, rows = decisions.register(state, "s", Asked(kept, PROTOBUF, ()))
        for record in rows:
            state.replay(*record)
        ids.add((version.id, version.version))
    assert ids == {(1, 1)}
    found = decisions.find(state, "s", Asked(schema.canonical, PROTOBUF, ()))
    assert found is not None and found.text == schema.canonical


@pytest.mark.parametrize("row", VALID, ids=by_name)
def test_a_schema_is_kept_as_what_was_sent(row: dict[str, Any]) -> None:
    check_kept(row["text"])


def test_the_files_of_google_apis_are_kept_as_what_they_are() -> None:
    root = Path(str(http_pb2.__file__)).parents[2]
    paths = [
        path for folder in ("api", "rpc", "type", "longrunning") for path in (root / "google" / folder).glob("*.proto")
    ]
    assert len(paths) > 30
    for path in paths:
        text = path.read_text()
        check_kept(text, imported(root, text))


def imported(root: Path, text: str) -> dict[str, str]:
    """Return the files of these folders that a file needs, each after those that it needs itself."""
    found: dict[str, str] = {}
    for name in parse_proto(text).imports:
        if (root / name).exists():
            needed = (root / name).read_text()
            found |= imported(root, needed) | {name: needed}
    return found


# -- Random files ------------------------------------------------------------------------------------------------------

BLANKS = st.sampled_from(["", "/* c */", "// c\n", "\n\t ", "/* a // b */"])
STRINGS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
NUMBERS = st.sampled_from(["0", "7", "017", "0x1F", "2147483647"])


def literal(text: str) -> str:
    """Return the text as consecutive literals with both kinds of quotes."""
    escaped = "".join(
        f"\\{byte:03o}" if byte < 32 or byte > 126 or chr(byte) in "\"'\\" else chr(byte) for byte in text.encode()
    )
    return f"\"{escaped}\" /* and */ ''\n"


@st.composite
def files(draw: st.DrawFn) -> str:
    """A proto2 file whose declarations are nested in all ways of the grammar, with blanks and comments between all words."""
    numbers = iter(range(1, 10_000))

    def tag() -> str:
        number = next(numbers)
        return draw(st.sampled_from([str(number), f"0{number:o}", f"0x{number:X}"]))

    def field(label: str, depth: int) -> str:
        blank, name = draw(BLANKS), f"f{next(numbers)}"
        kind = draw(
            st.sampled_from(["int32", "string", "bytes", "double", "group"] if depth < 3 else ["int32", "string"])
        )
        if kind == "group":
            return f"{label} group G{next(numbers)} {blank} = {tag()} {{ {body(depth + 1)} }}\n"
        default = {
            "string": lambda: literal(draw(STRINGS)),
            "bytes": lambda: literal(draw(STRINGS)),
            "int32": lambda: draw(NUMBERS),
            "double": lambda: draw(st.sampled_from(["1e-7", ".5", "-inf", "nan", "3.", "1E+20"])),
        }[kind]
        options = (
            f"[ {blank} default {blank} = {default()}, deprecated = true ]"
            if label == "optional" and draw(st.booleans())
            else ""
        )
        return f"{label} {blank} {kind} {name} {blank} = {tag()} {options} ;{draw(BLANKS)}\n"

    def member(depth: int) -> str:
        what = draw(st.sampled_from(["field", "field", "oneof", "map", "message", "enum", "reserved"]))
        if what == "oneof" and depth < 3:
            return f"oneof o{next(numbers)} {{ {field('', depth + 1)} {field('', depth + 1)} }}\n"
        if what == "map":
            return f"map < string , {draw(BLANKS)} int64 > m{next(numbers)} = {tag()};\n"
        if what == "message" and depth < 3:
            return f"message M{next(numbers)} {draw(BLANKS)} {{ {body(depth + 1)} }}\n"
        if what == "enum":
            name = next(numbers)
            return f"enum E{name} {{ A{name} = {draw(BLANKS)} 0; B{name} = {draw(st.sampled_from(['-1', '0x7', '010']))}; }}\n"
        if what == "reserved":
            first = next(numbers)
            return f'reserved {first} , {draw(BLANKS)} {next(numbers)}; reserved "r{first}" ;\n'
        return field(draw(st.sampled_from(["optional", "repeated", "required"])), depth)

    def body(depth: int) -> str:
        return "".join(member(depth) for _ in range(draw(st.integers(1, 3))))

    top = "".join(f"message T{next(numbers)} {{ {body(0)} }}\n" for _ in range(draw(st.integers(1, 2))))
    return (
        f"syntax = {draw(BLANKS)} 'proto2' ;\npackage a . b ;\noption java_package = {literal(draw(STRINGS))};\n{top}"
    )


@settings(max_examples=seeds(60, long=2_000), deadline=None)
@given(files())
def test_any_file_is_kept_as_what_was_sent(text: str) -> None:
    check_kept(text)


@pytest.mark.parametrize("method", ["_group", "_oneof", "_reserved"])
def test_a_printer_that_leaves_something_out_is_noticed_before_a_schema_is_kept(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'syntax = "proto2"; message A { reserved 9; oneof o { int32 x = 1; } optional group G = 2 { optional int32 y = 3; } }'
    ProtobufSchema(text, {}).check()
    monkeypatch.setattr(Printer, method, lambda *_: "")
    with pytest.raises(InvalidSchema, match="would be kept as another one"):
        ProtobufSchema(text, {}).check()


def test_hostile_texts_are_refused_in_the_time_of_their_length() -> None:
    for text in (
        'syntax = "proto3"; message A { string b = ' + "9" * 500_000 + "; }",
        "message A { " * 100_000,
        "message A { optional int32 a = 1 [(x) = " + "{ a: " * 100_000,
        "/*" * 500_000,
        '"' + "\\" * 500_000,
        "a" * 1_000_000,
        "option a = " + "[" * 100_000,
    ):
        with pytest.raises(InvalidSchema):
            ProtobufSchema(text, {}).check()
