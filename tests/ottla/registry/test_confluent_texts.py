"""Schemas as Confluent's registry keeps and normalizes them.

`data/confluent_texts.json` is what its providers for Java answered (confluentinc/schema-registry at 794611bd86d of 2026-08-22, compiled and
run): the text that is kept, and the normalized one where ours is the same. What differs on purpose has a row in docs/REGISTRY.md.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.checking import answer_to, parse
from ottla.registry.formats.parsed import InvalidSchema

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "data/confluent_texts.json").read_text())


def answer(row: dict[str, Any], *, normalize: bool) -> Any:
    request = {"kind": row["kind"], "text": row["text"], "dependencies": row.get("needed", {}), "normalize": normalize}
    rest = {"strict": True, "is_new": row.get("is_new", True), "form": "", "level": "NONE", "lenient": False}
    made = answer_to({**request, **rest, "earlier": []})
    return made.get("canonical", made)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_the_text_that_is_kept_is_the_one_that_confluents_registry_keeps(kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind]
    assert len(rows) > 60
    assert [row["name"] for row in rows if answer(row, normalize=False) != row["kept"]] == []


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_the_normalized_text_is_that_of_confluents_registry(kind: str) -> None:
    rows = [row for row in ROWS if row["kind"] == kind and "normalized" in row]
    assert len(rows) > 60
    assert [row["name"] for row in rows if answer(row, normalize=True) != row["normalized"]] == []


RULES = """syntax = "proto2";
package v;
import "google/protobuf/descriptor.proto";
message Rules { optional Text text = 1; repeated string tags = 2; }
message Text { optional int32 min = 1; optional int32 max = 2; }
extend google.protobuf.FieldOptions { optional Rules rules = 1071; }
"""


def test_paths_into_one_custom_option_are_one_message_also_where_another_file_defines_it() -> None:
    """Confluent's registry prints a list there, which protoc rejects for a field that is not repeated."""
    text = 'syntax = "proto3"; import "v.proto"; message M { string a = 1 [(v.rules).text.min = 1, (v.rules).text.max = 2]; }'
    normal = parse("PROTOBUF", text, {"v.proto": RULES}).normalized()
    assert "(v.rules) = {\n    text: {\n      max: 2,\n      min: 1\n    }\n  }" in normal


def test_an_import_that_is_not_there_is_taken_where_no_type_of_it_is_named() -> None:
    """Its custom options stay in the text only, so that their file need not be registered."""
    text = 'syntax = "proto3"; import public "gone.proto"; import "google/protobuf/any.proto"; import public "gone2.proto"; '
    text += "message M { google.protobuf.Any a = 1 [(gone.rule).len = 3]; }"
    schema = parse("PROTOBUF", text, {})
    schema.check()
    assert 'import public "gone.proto";' in schema.canonical
    with pytest.raises(InvalidSchema, match=r"gone\.Kind"):
        parse("PROTOBUF", text.replace("google.protobuf.Any a", "gone.Kind a"), {}).check()
