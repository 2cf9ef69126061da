"""The registry accepts its own texts again: those of random and of recorded schemas, canonical, normalized, referred to, and
replayed.

The canonical and the normalized text of each schema are accepted by the registry's own check, are printed unchanged, get the
same id again, and are compatible with the schema. A schema that refers to them is found by its references, and also with their
definitions inside. A fresh state that replays the records gives the same results.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.registry import decisions
from ottla.registry.checking import answer_to, parse
from ottla.registry.client import Reference
from ottla.registry.decisions import Asked
from ottla.registry.formats import avro_text, java_json, json_schema
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Record
from tests.effort import examples

DATA = Path(__file__).parent / "data"
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = st.sampled_from(["a", "B", "_c1", "record", "x"])
spaces = st.sampled_from(["", "n", "n.m", "o"])
numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([1e25, 1e-5, 1e7]),
)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda rows: st.lists(rows, max_size=2) | st.dictionaries(texts, rows, max_size=2),
    max_leaves=4,
)


class Avro:
    """Draws one Avro schema. Each of its names is defined once."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._defined: list[tuple[str, Any]] = []
        self._count = 0

    def schema(self, depth: int, space: str) -> tuple[Any, Any]:
        """Return a schema and a value that is its default."""
        kinds = (
            [*PRIMITIVES, "again"]
            if depth == 0
            else ["record", "enum", "fixed", "array", "map", "union", "again", "int"]
        )
        match self._draw(st.sampled_from(kinds)):
            case "again":
                return self._draw(st.sampled_from(self._defined)) if self._defined else ("string", "s")
            case "array":
                items, value = self.schema(depth - 1, space)
                return {"items": items, "type": "array", **self._properties()}, [value]
            case "map":
                inner, value = self.schema(depth - 1, space)
                return {"type": "map", "values": inner}, {"k": value}
            case "union":
                inner, value = self.schema(0, space)
                if "null" in (inner, inner["type"] if isinstance(inner, dict) else ""):
                    return inner, value
                return ["null", inner], self._draw(st.sampled_from([None, value]))
            case "record" | "enum" | "fixed" as kind:
                return self._definition(kind, depth, space)
            case kind:
                value = {"null": None, "boolean": True, "bytes": "ÿ", "string": "x"}.get(
                    kind, self._draw(st.integers(-9, 9))
                )
                value = self._draw(numbers) if kind == "double" else value
                made = {"type": kind, **self._properties()} if self._draw(st.booleans()) else kind
                return made, value

    def _definition(self, kind: str, depth: int, space: str) -> tuple[Any, Any]:
        self._count += 1
        simple, inner = f"{self._draw(names)}{self._count}", self._draw(st.sampled_from([space, "n", "o.p"]))
        full = f"{inner}.{simple}" if inner else simple
        made: dict[str, Any] = self._draw(
            st.sampled_from(
                [{"name": simple, "namespace": inner}, {"name": full} if inner else {"name": simple, "namespace": ""}]
            )
        )
        made |= {
            "type": kind,
            **self._properties(),
            **self._draw(st.sampled_from([{}, {"doc": "d"}, {"aliases": ["O"]}])),
        }
        value: Any = "s"
        if kind == "enum":
            made["symbols"], value = ["s", "t"], "s"
            made |= self._draw(st.sampled_from([{}, {"default": "t"}]))
        elif kind == "fixed":
            made["size"] = self._draw(st.integers(0, 20))
        else:
            made["fields"], value = [], {}
            for number in range(self._draw(st.integers(0, 3))):
                inside, default = self.schema(depth - 1, inner)
                row = {"type": inside, "name": f"f{number}", **self._properties()}
                row |= self._draw(st.sampled_from([{}, {"order": "descending"}, {"aliases": ["z", "y"]}, {"doc": "x"}]))
                row |= self._draw(st.sampled_from([{}, {"default": default}]))
                made["fields"].append(row)
                value[row["name"]] = default
        if inner:  # a name without a namespace means another one inside
            self._defined.append((full, value))
        return made, value

    def _properties(self) -> dict[str, Any]:
        return {"z": self._draw(values), "b": 1} if self._draw(st.integers(0, 5)) == 0 else {}


@st.composite
def avro_schemas(draw: st.DrawFn) -> str:
    made, _ = Avro(draw).schema(draw(st.integers(0, 3)), draw(spaces))
    text = json.dumps(made, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
    return draw(st.sampled_from(["", "/* c */ ", "// d\n"])) + text


def _objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keywords = {
        "type": st.sampled_from(["object", "string", ["null", "integer"]]),
        "properties": st.dictionaries(texts, inner, max_size=3),
        "patternProperties": st.dictionaries(st.sampled_from(["^x", r"^\p{L}+$", "^(?!x)"]), inner, max_size=2),
        "items": inner,
        "anyOf": st.lists(inner, max_size=2),
        "required": st.lists(texts, max_size=2),
        "additionalProperties": st.booleans() | inner,
        "maximum": numbers,
        "enum": st.lists(values, max_size=3),
        "default": values,
        "const": values,
        "$ref": st.sampled_from(["#", "http://json-schema.org/draft-07/schema#"]),
        "title": texts,
        "x-other": values,
    }
    return st.fixed_dictionaries({}, optional=keywords)


json_schemas = st.recursive(st.booleans() | st.just({}), _objects, max_leaves=6).map(json.dumps)


class Subjects:
    """A state with its records."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.rows: list[Record] = []

    def register(self, subject: str, asked: Asked) -> int:
        version, rows = decisions.register(self.state, subject, asked)
        for row in rows:
            self.state.replay(*row)
        self.rows += rows
        return version.id


def kept(
    kind: str, text: str, needed: Mapping[str, str] | None = None, *, normalize: bool = False, form: str = ""
) -> str:
    """Return the canonical text of a new schema, as the registry's checking process computes it."""
    request = {
        "kind": kind,
        "text": text,
        "dependencies": needed or {},
        "strict": True,
        "is_new": True,
        "normalize": normalize,
    }
    answer = answer_to(request | {"form": form, "level": "NONE", "lenient": False, "earlier": []})
    assert "invalid" not in answer, (answer, text)
    return str(answer["formatted"] if form else answer["canonical"])


def check(kind: str, text: str) -> None:
    """Check all statements at the top of this file about one schema."""
    book = Subjects()
    for subject, made in (("kept", kept(kind, text)), ("normal", kept(kind, text, normalize=True))):
        schema_id = book.register(subject, Asked(made, kind, ()))
        assert kept(kind, made) == made
        assert parse(kind, made, {}).incompatible(parse(kind, text, {})) == []
        assert book.register(subject, Asked(kept(kind, made), kind, ())) == schema_id
        again = json.dumps(json.loads(made), indent=2) if kind == "AVRO" else f" {made}\n"
        found = decisions.find(book.state, subject, Asked(kept(kind, again), kind, ()))
        assert found is not None and found.id == schema_id
        _check_referrer(book, kind, subject, made)
    normal = kept(kind, text, normalize=True)
    assert kept(kind, kept(kind, text), normalize=True) == normal == kept(kind, normal, normalize=True)
    fresh = RegistryState()
    for row in book.rows:
        fresh.replay(*row)
    for subject in ("kept", "normal"):
        assert fresh.versions(subject, deleted=True) == book.state.versions(subject, deleted=True)
        assert fresh.versions(subject, deleted=True)[0].text == book.state.versions(subject, deleted=True)[0].text


def check_with_meaning(kind: str, text: str) -> None:
    """Check also that nothing of a schema is lost."""
    check(kind, text)
    assert meaning(kind, kept(kind, text)) == meaning(kind, text)
    if kind == "JSON":
        assert meaning(kind, kept(kind, text, normalize=True)) == meaning(kind, text)


def meaning(kind: str, text: str) -> Any:
    """Return what another reader finds in a text: Avro's library for Python, or Python's JSON with exact numbers."""
    if kind == "JSON":
        return json.loads(text, parse_float=Decimal)
    from avro.name import Names
    from avro.schema import make_avsc_object

    node = java_json.loads(text, comments=True)
    return make_avsc_object(node, Names(validate_names=False), validate_names=False).to_json()


def _check_referrer(book: Subjects, kind: str, subject: str, text: str) -> None:
    """Check a schema that refers to a registered one."""
    if kind == "JSON":
        name, outer = "other.json", '{"properties":{"a":{"$ref":"other.json"}}}'
    else:
        node = json.loads(text)
        if not isinstance(node, dict) or node["type"] not in avro_text.NAMED:
            return
        name = avro_text.full_name(node, "")
        outer = json.dumps({"type": "array", "items": name})
    references = (Reference(name, subject, 1),)
    made = kept(kind, outer, {name: text})
    schema_id = book.register("outer", Asked(made, kind, references))
    found = decisions.find(book.state, "outer", Asked(kept(kind, made, {name: text}), kind, references))
    assert found is not None and found.id == schema_id
    if kind == "AVRO":
        inlined = kept(kind, made, {name: text}, form="resolved")
        assert kept(kind, inlined) == inlined
        assert f'"items":{text}' in inlined


@settings(max_examples=examples(100), deadline=None)
@given(avro_schemas())
def test_a_random_avro_schema_is_kept_as_a_text_that_is_taken_again(text: str) -> None:
    check_with_meaning("AVRO", text)


@settings(max_examples=examples(60), deadline=None)
@given(json_schemas)
def test_a_random_json_schema_is_kept_as_a_text_that_is_taken_again(text: str) -> None:
    check_with_meaning("JSON", text)


def test_recorded_schemas_are_kept_as_texts_that_are_taken_again() -> None:
    rows = [
        (kind, printed)
        for kind, name in (("AVRO", "avro_texts.json"), ("JSON", "json_texts.json"))
        for _, printed in json.loads((DATA / name).read_text())["schemas"]
        if printed is not None
    ]
    assert len(rows) > 200
    for kind, text in rows:
        check(kind, text)


def test_a_printer_that_drops_the_default_of_a_field_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":1}]}'
    check_with_meaning("AVRO", text)
    right = avro_text.JavaPrinter._field

    def field(self: avro_text.JavaPrinter, row: Mapping[str, Any], space: str) -> Any:
        return {key: value for key, value in right(self, row, space).items() if key != "default"}

    monkeypatch.setattr(avro_text.JavaPrinter, "_field", field)
    with pytest.raises(AssertionError):
        check_with_meaning("AVRO", text)


def test_a_printer_of_json_that_rounds_a_number_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"maximum":1.00000000000000000001}'
    check_with_meaning("JSON", text)
    right = json_schema.dump
    monkeypatch.setattr(json_schema, "dump", lambda value: right(json.loads(right(value))))
    with pytest.raises(AssertionError):
        check_with_meaning("JSON", text)
