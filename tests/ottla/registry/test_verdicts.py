"""Verdicts about compatibility equal those of the recorded tables, each of which names its source: 2966 pairs of schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.checking import incompatibilities, parse
from ottla.registry.formats.json_schema import JsonSchema

DATA = Path(__file__).parent / "data"
#: Apicurio's verdicts that differ from Confluent's rules. These have no rule for some keywords (format, required names that are
#: no properties, patternProperties, contentEncoding, contentMediaType, if), none between a bound and an exclusive bound, and
#: none between `const` and an `enum` of one value.
NOT_CONFLUENTS = {
    "String: format 2",
    "Number: exclusiveMinimum 2",
    "Number: exclusiveMinimum 3",
    "Number: exclusiveMinimum 5",
    "Number: exclusiveMaximum 2",
    "Number: exclusiveMaximum 3",
    "Number: exclusiveMaximum 5",
    "Object: required",
    "Object: patternProperties 2",
    "Const: Enum equivalency",
    "String: contentEncoding 3",
    "String: contentMediaType 3",
    "Conditional: if",
}


def rows_of(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((DATA / name).read_text())["rows"]
    return rows


def test_avro_verdicts_and_texts_are_those_of_apache_avro_for_java() -> None:
    rows = rows_of("avro_verdicts.json")
    parsed = [parse("AVRO", json.dumps(row["schema"]), {}) for row in rows]
    assert [schema.canonical for schema in parsed] == [row["printed"] for row in rows]
    wrong = [
        f"{reader.canonical} reads {writer.canonical}: {row['readers'][index]}"
        for writer, row in zip(parsed, rows, strict=True)
        for index, reader in enumerate(parsed)
        if bool(reader.incompatible(writer)) is (row["readers"][index] == "1")
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("lenient", [False, True])
def test_json_verdicts_are_those_of_confluents_registry(lenient: bool) -> None:
    wrong = []
    for row in rows_of("json_verdicts.json"):
        old, new = (JsonSchema(json.dumps(row[side]), {}) for side in ("old", "new"))
        expected = row.get("lenient", row["compatible"]) if lenient else row["compatible"]
        found = new.incompatible(old, lenient=lenient)
        if (not found) is not expected:
            wrong.append(f"{row['description']}: {found}")
    assert not wrong, "\n".join(wrong)


def test_protobuf_verdicts_are_those_of_confluents_registry() -> None:
    wrong = []
    for row in rows_of("protobuf_verdicts.json"):
        old, new = (parse("PROTOBUF", row[side], row.get(f"{side}_dependencies", {})) for side in ("old", "new"))
        found = new.incompatible(old)
        if (not found) is not row["compatible"]:
            wrong.append(f"{row['description']}: {found}")
    assert not wrong, "\n".join(wrong)


def test_apicurios_verdicts_are_shared_but_for_keywords_that_confluents_rules_do_not_have() -> None:
    differ = set()
    for row in rows_of("apicurio_verdicts.json"):
        old, new = (parse(row["kind"], json.dumps(row[side]), {}) for side in ("old", "new"))
        backward, forward = not new.incompatible(old), not old.incompatible(new)
        expected = {"backward": (True, forward), "both": (True, True), "none": (False, forward)}[row["verdict"]]
        if expected != (backward, forward):
            differ.add(row["description"])
    assert differ == NOT_CONFLUENTS


def avro(*fields: str) -> str:
    rows = [
        {"name": field.rstrip("?"), "type": "int"} | ({"default": 0} if field.endswith("?") else {}) for field in fields
    ]
    return json.dumps({"type": "record", "name": "R", "fields": rows})


@pytest.mark.parametrize(
    ("level", "new", "compatible"),
    [
        ("NONE", '"string"', True),
        ("BACKWARD", avro("a", "b", "c?"), True),
        ("BACKWARD", avro("a", "b", "c"), False),
        # The new version can read the second version, but not the first one.
        ("BACKWARD", avro("a", "b"), True),
        ("BACKWARD_TRANSITIVE", avro("a", "b"), False),
        ("BACKWARD_TRANSITIVE", avro("a", "b?"), True),
        ("FORWARD", avro("a", "b", "c"), True),
        ("FORWARD", avro("a"), True),
        ("FORWARD", avro("b"), False),
        ("FORWARD_TRANSITIVE", avro("a"), True),
        ("FULL", avro("a", "c?"), True),
        ("FULL", avro("a", "c"), False),
        ("FULL_TRANSITIVE", avro("a", "b"), False),
    ],
)
def test_a_level_says_which_versions_count_and_who_reads_whom(level: str, new: str, compatible: bool) -> None:
    earlier = [(number, parse("AVRO", text, {})) for number, text in ((1, avro("a")), (2, avro("a", "b?")))]
    found = incompatibilities(parse("AVRO", new, {}), earlier, level, lenient=False)
    assert (not found) is compatible
    if found:
        assert "{reader}" not in "".join(found)
        assert any(row.startswith("{oldSchemaVersion: ") for row in found)


def test_another_format_is_incompatible() -> None:
    earlier = [(1, parse("AVRO", '"string"', {}))]
    found = incompatibilities(parse("JSON", "{}", {}), earlier, "FULL", lenient=False)
    assert found == ["Incompatible because of different schema type"]


def test_schemas_that_contain_themselves_are_compared_to_the_end() -> None:
    def tree(leaf: str) -> JsonSchema:
        node = {"type": "object", "properties": {"v": {"type": leaf}, "next": {"oneOf": [{"$ref": "#/definitions/N"}]}}}
        return JsonSchema(json.dumps({"$ref": "#/definitions/N", "definitions": {"N": node}}), {})

    assert tree("string").incompatible(tree("string")) == []
    assert tree("string").incompatible(tree("number"))
