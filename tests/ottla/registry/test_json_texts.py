"""JSON schemas compared with the libraries of Confluent's registry: which schemas they accept, the canonical text, and regular
expressions.

`data/json_texts.json` is what everit-json-schema 1.14.6 (drafts 4 to 7) and json-sKema 0.23.0 (2020-12) answered, and what Jackson
2.18.2 printed with the settings of Confluent's registry: [text, printed or null], and [regular expression, whether Java takes it].
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.checking import parse
from ottla.registry.formats.json_pattern import check_pattern, matches
from ottla.registry.formats.json_schema import JsonSchema
from ottla.registry.formats.parsed import InvalidSchema
from tests.ottla.registry.memory import Client, leader

RECORDED = json.loads((Path(__file__).parent / "data" / "json_texts.json").read_text())
#: These are valid in ECMA-262's dialect, but not in Java's.
ECMA = {
    "a{", "a{,3}", "{", "[^]", "[]", "\\k<x>", "\\p{Letter}", "\\p{Nope}", "\\u{e9}", "\\x4", "\\y", "[a-\\d]", "a{99999999999}",
}  # fmt: skip
DRAFT_4, DRAFT_7 = "http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"


def printed(text: str) -> str | None:
    try:
        schema = JsonSchema(text, {})
        schema.check()
    except InvalidSchema:
        return None
    return schema.canonical


def valid(pattern: str) -> bool:
    try:
        check_pattern(pattern)
    except InvalidSchema:
        return False
    return True


def schema(**keywords: Any) -> JsonSchema:
    made = JsonSchema(json.dumps({"type": "object", **keywords}), {})
    made.check()
    return made


def test_the_same_schemas_are_taken_and_kept_as_the_same_texts() -> None:
    assert len(RECORDED["schemas"]) > 200
    differ = [row for row in RECORDED["schemas"] if printed(row[0]) != row[1]]
    assert not differ


def test_regular_expressions_of_java_and_of_ecma_262_are_taken() -> None:
    differ = {text for text, is_java in RECORDED["patterns"] if valid(text) != is_java}
    assert differ == ECMA


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (r"^\p{L}+$", "äb", True),
        (r"^(?<k>x-.*)$", "x-a", True),
        (r"^(?<k>x-.*)$", "ax-a", False),
        ("b", "abc", True),
        ("a$|b^", "ba", True),
        (r"\u00e9", "é", True),
        (r"[\s\d]", "\x0b", True),
        (r"\cA", "\x01", True),
        (r"\p{Alpha}+\P{Alpha}", "a1", True),
        ("x(?i)abc", "xABC", True),
        ("x(?i)abc", "Xabc", False),
        ("^(?=a)b", "b", None),
        (r"(a)\1", "aa", None),
        ("a++", "a", None),
        ("^a{1,2000}$", "a", None),
        ("[a[b]]", "a", None),
    ],
)
def test_a_name_is_matched_as_the_dialect_says_or_not_at_all(pattern: str, name: str, found: bool | None) -> None:
    assert matches(pattern, name) is found


def test_an_expression_made_to_backtrack_takes_no_time() -> None:
    begin = time.process_time()
    assert matches("^(a|a)*(a+)+$", "a" * 5000 + "!") is False
    assert time.process_time() - begin < 1


def test_a_pattern_in_another_dialect_covers_a_property_that_is_added() -> None:
    old = schema(additionalProperties=False, patternProperties={r"^(?<k>x-\p{L}+)$": {"type": "string"}})
    same = {"additionalProperties": False, "patternProperties": {r"^(?<k>x-\p{L}+)$": {"type": "string"}}}
    assert not schema(properties={"x-ä": {"type": "string"}}, **same).incompatible(old)
    assert "NOT_COVERED" in str(schema(properties={"x-ä": {"type": "number"}}, **same).incompatible(old))


def test_a_pattern_that_is_not_evaluated_makes_no_change_compatible_and_is_named() -> None:
    same = {"additionalProperties": False, "patternProperties": {"^(?!x)": {"type": "string"}}}
    old, new = schema(**same), schema(properties={"a": {"type": "string"}}, **same)
    for reader, writer in ((new, old), (old, new)):
        (message,) = [row for row in reader.incompatible(writer, lenient=True) if "PATTERN" in row]
        assert "is not known" in message and "#/properties/a" in message
    assert not old.incompatible(schema(**same))


def test_references_within_values_are_values() -> None:
    value = {"$ref": "#/nowhere"}
    schema(default=value, examples=[value], enum=[value, {"a": value}], const={"properties": {"b": value}}, x=value)
    for keyword in ("not", "items", "additionalProperties", "propertyNames", "contains", "if"):
        with pytest.raises(InvalidSchema, match="nowhere"):
            schema(**{keyword: value})


def test_a_schema_is_found_by_its_own_id_with_and_without_an_empty_fragment() -> None:
    for draft, keyword in ((DRAFT_4, "id"), (DRAFT_7, "$id")):
        for own in ("http://acme.test/s.json", "http://acme.test/s.json#"):
            for reference in ("http://acme.test/s.json#", "http://acme.test/s.json", "s.json", "s.json#/definitions/A"):
                rest = {"properties": {"n": {"$ref": reference}}, "definitions": {"A": {"type": "string"}}}
                made = schema(**{"$schema": draft, keyword: own, **rest})
                assert made.incompatible(made) == []


def test_references_in_a_circle_are_taken_and_compared() -> None:
    circle = schema(
        **{
            "$schema": DRAFT_7,
            "properties": {"a": {"$ref": "#/definitions/A"}},
            "definitions": {"A": {"$ref": "#/definitions/A"}},
        }
    )
    text = schema(**{"$schema": DRAFT_7, "properties": {"a": {"type": "string"}}})
    assert circle.incompatible(circle) == []
    assert "TYPE_CHANGED" in text.incompatible(circle)[0]


def test_references_to_meta_schemas_are_taken_and_compared() -> None:
    old, new = (
        schema(properties={"a": {"$ref": f"http://json-schema.org/draft-0{draft}/schema#"}}) for draft in (6, 7)
    )
    assert old.incompatible(old) == []
    assert "TYPE_CHANGED" in new.incompatible(old)[0]


def test_a_type_that_there_is_not_is_refused_before_anything_is_compared_with_it() -> None:
    with pytest.raises(InvalidSchema, match="unknown type"):
        JsonSchema(
            '{"$schema":"http://json-schema.org/draft-03/schema#","properties":{"a":{"type":"any"}}}', {}
        ).check()


def test_bounds_are_compared_exactly() -> None:
    old, new = (parse("JSON", f'{{"type":"number","maximum":{bound}}}', {}) for bound in ("1.10", "1.1"))
    assert new.incompatible(old) == [] == old.incompatible(new)
    assert old.canonical != new.canonical
    wide = parse("JSON", '{"type":"number","maximum":1e400,"multipleOf":1e300}', {})
    tiny = parse("JSON", '{"type":"number","maximum":1e401,"multipleOf":1e-300}', {})
    assert len(wide.incompatible(tiny)) == 2


async def test_over_http_generated_schemas_are_registered() -> None:
    async with leader() as (_, application):
        client = Client(application)
        texts = (
            {"$schema": DRAFT_4, "type": "object", "required": []},
            {"properties": {"a": {"type": "string", "pattern": r"^\p{L}+$"}}},
        )
        for number, text in enumerate(texts):
            body = {"schema": json.dumps(text), "schemaType": "JSON"}
            assert (await client.ask("POST", f"/subjects/{number}/versions", body))[0] == 200
        wrong = {"schema": '{"pattern":"^([a-z$"}', "schemaType": "JSON"}
        code, answer = await client.ask("POST", "/subjects/w/versions", wrong)
        assert code == 42201 and "is no regular expression" in answer["message"]


async def test_half_of_a_surrogate_pair_is_refused() -> None:
    async with leader() as (_, application):
        body = {"schema": '{"title":"\\ud83d"}', "schemaType": "JSON"}
        code, answer = await Client(application).ask("POST", "/subjects/s/versions", body)
        assert code == 42201 and "surrogate" in answer["message"]
