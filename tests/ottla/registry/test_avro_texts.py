"""Avro schemas compared with Apache Avro 1.12.0 for Java: which schemas it accepts, the text that it prints, and the defaults
that fields may have.

`data/avro_texts.json` is what its parser answered with defaults validated: [text, printed or null], and for each type of a field the
defaults that it takes and those that it refuses.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from ottla.registry.checking import answer_to, parse
from ottla.registry.formats.avro_schema import AvroSchema
from ottla.registry.formats.parsed import InvalidSchema
from tests.ottla.registry.memory import Client, leader

RECORDED = json.loads((Path(__file__).parent / "data" / "avro_texts.json").read_text())
TEXT = '{"type":"record","name":"R","fields":[{"name":"a","type":"string","default":0}]}'


def printed(text: str) -> str | None:
    """Return the canonical text of a new schema, or None if it is rejected."""
    try:
        schema = AvroSchema(text, {})
        schema.check()
    except InvalidSchema:
        return None
    return schema.canonical


def with_default(kind: Any, default: Any) -> str:
    return json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": kind, "default": default}]})


def asked(text: str, **others: Any) -> dict[str, Any]:
    rest = {"strict": True, "is_new": True, "normalize": False, "form": "", "level": "NONE", "lenient": False}
    return answer_to({"kind": "AVRO", "text": text, "dependencies": {}, "earlier": [], **rest, **others})


def test_javas_library_takes_the_same_schemas_and_prints_the_same_texts() -> None:
    assert len(RECORDED["schemas"]) > 200
    differ = [row for row in RECORDED["schemas"] if printed(row[0]) != row[1]]
    assert not differ


@pytest.mark.parametrize("row", RECORDED["defaults"], ids=lambda row: json.dumps(row[0])[:40])
def test_a_field_has_the_defaults_that_javas_library_takes(row: list[Any]) -> None:
    kind, good, bad = row
    assert [each for each in good if printed(with_default(kind, each)) is None] == []
    assert [each for each in bad if printed(with_default(kind, each)) is not None] == []


def _unions(depth: int) -> str:
    """Return a schema whose default is compared with three records at each level, and fits none of them at the last level."""
    fields = [{"name": "x", "type": ["null", "A", "B", "C"]}]
    records: list[Any] = [{"type": "record", "name": name, "fields": fields} for name in "ABC"]
    default: Any = 5
    for _ in range(depth):
        default = {"x": default}
    outer = [{"name": name, "type": record} for name, record in zip("abc", records, strict=True)]
    return json.dumps(
        {"type": "record", "name": "R", "fields": [*outer, {"name": "d", "type": ["A", "B", "C"], "default": default}]}
    )


@pytest.mark.parametrize(
    "text",
    [
        _unions(60),
        "/* " * 300_000,
        '"' + '\\"' * 300_000 + "//",
        '{"type":"record","name":"R","doc":"' + "//" * 300_000,
    ],
    ids=["unions", "comments", "quotes", "a text that does not end"],
)
def test_a_text_made_to_take_long_is_refused_soon(text: str) -> None:
    begin = time.process_time()
    assert printed(text) is None
    assert time.process_time() - begin < 2


def test_a_default_of_another_type_is_refused_when_it_is_new_with_the_sentence_of_java() -> None:
    assert asked(TEXT)["invalid"] == 'Invalid default for field a: 0 not a "string"'
    assert asked(TEXT, is_new=False)["canonical"] == TEXT


def test_an_earlier_version_may_have_a_default_that_is_refused_today() -> None:
    good = TEXT.replace("0", '""')
    earlier = [{"kind": "AVRO", "text": TEXT, "version": 1, "dependencies": {}}]
    assert asked(good, level="FULL", earlier=earlier)["messages"] == []


def test_a_normalized_text_is_one_that_is_kept_as_it_is() -> None:
    text = (
        '{"type":"record","name":"n.R","fields":[{"name":"a","type":"int","order":"DESCENDING","aliases":["c","b"]}]}'
    )
    made = asked(text, normalize=True)["canonical"]
    assert asked(made)["canonical"] == asked(made, normalize=True)["canonical"] == made
    assert '"order":"descending"' in made


def test_a_name_without_a_namespace_is_found_from_within_one() -> None:
    text = (
        '{"type":"record","name":"R","fields":[{"name":"b","type":'
        '{"type":"record","name":"C","namespace":"x","fields":[{"name":"q","type":["null","R"]}]}}]}'
    )
    schema = parse("AVRO", text, {})
    schema.check()
    assert schema.incompatible(parse("AVRO", text.replace('"null"', '"string"'), {}))
    assert not schema.incompatible(schema)


def test_a_definition_in_a_schema_may_not_be_one_of_its_references_again() -> None:
    inner = '{"type":"record","name":"I","fields":[]}'
    schema = parse("AVRO", f'{{"type":"record","name":"O","fields":[{{"name":"a","type":{inner}}}]}}', {"I": inner})
    with pytest.raises(InvalidSchema, match="redefine"):
        schema.check()


@pytest.mark.parametrize(
    "text",
    [
        '{"type":"record","name":"größe","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"größe","type":"int"}]}',
        '{"type":"record","name":"R","namespace":"n.größe","fields":[]}',
        '{"type":"record","name":"R","aliases":["größe"],"fields":[]}',
        '{"type":"enum","name":"E","symbols":["grün"]}',
        '{"type":"record","name":"R","fields":[{"name":"a\u0661","type":"int"}]}',
    ],
)
def test_letters_of_other_alphabets_are_read_and_not_registered_as_confluents_two_validators_have_it(text: str) -> None:
    schema = parse("AVRO", text, {})
    schema.check(is_new=False)
    with pytest.raises(InvalidSchema, match="Illegal"):
        schema.check(is_new=True)


def test_symbols_of_any_alphabet_are_compared_and_named() -> None:
    old, new = (
        parse("AVRO", f'{{"type":"array","items":{{"type":"enum","name":"E","symbols":["x",{symbols}]}}}}', {})
        for symbols in ('"grün","größe"', '"grün"')
    )
    old.check(is_new=False)
    assert old.incompatible(new) == []
    (message,) = new.incompatible(old)
    assert "größe" in message and "grün" not in message


async def test_a_wrong_default_is_refused_over_http_and_one_that_was_imported_is_found_and_followed() -> None:
    good = {"schema": TEXT.replace("0", '"x"')}
    async with leader() as (_, application):
        client = Client(application)
        code, answer = await client.ask("POST", "/subjects/s/versions", {"schema": TEXT})
        assert code == 42201 and "Invalid default for field a" in answer["message"]
        assert (await client.ask("PUT", "/mode/s", {"mode": "IMPORT"}))[0] == 200
        imported = {"schema": TEXT, "id": 7, "version": 1}
        assert (await client.ask("POST", "/subjects/s/versions", imported))[1]["id"] == 7
        assert (await client.ask("PUT", "/mode/s", {"mode": "READWRITE"}))[0] == 200
        assert (await client.ask("POST", "/subjects/s", {"schema": TEXT}))[1]["id"] == 7
        assert (await client.ask("POST", "/subjects/s/versions", {"schema": TEXT}))[1]["id"] == 7
        assert (await client.ask("POST", "/compatibility/subjects/s/versions/1", {"schema": TEXT}))[0] == 42201
        assert (await client.ask("POST", "/subjects/s/versions", good))[1]["id"] == 8
