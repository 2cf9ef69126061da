"""References of schemas: what a request visits, what it may read on the way, and what "latest" means when a schema is written."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ottla.registry import references
from ottla.registry.checking import Question
from ottla.registry.client import Reference
from ottla.registry.decisions import asked_from
from ottla.registry.errors import RegistryError
from ottla.registry.references import Needs
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Version, schema_record
from tests.ottla.registry.memory import Client, leader

RECORD = {"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}
GROWN = RECORD | {"fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "int", "default": 0}]}
OUTER = {"type": "record", "name": "U", "fields": [{"name": "t", "type": "T"}]}


def put(state: RegistryState, subject: str, number: int, rows: list[Reference], text: str = '"int"') -> None:
    schema_id = state.id_max(".") + 1
    state.replay(*schema_record(Version(subject, number, schema_id, text, references=tuple(rows))))


def to(subject: str, version: int = 1, name: str = "") -> Reference:
    return Reference(name or subject, subject, version)


def test_sixty_references_at_each_of_eight_levels_are_walked_once() -> None:
    state = RegistryState()
    put(state, "l0", 1, [])
    for level in range(1, 9):
        put(state, f"l{level}", 1, [to(f"l{level - 1}")] * 60)
    began = time.thread_time()
    needed = Needs(state).of("x", (to("l8"),) * 60)
    assert list(needed) == [f"l{level}" for level in range(9)]
    assert time.thread_time() - began < 0.5


def test_two_names_of_one_schema_are_both_there_and_each_schema_stands_after_what_it_needs() -> None:
    state = RegistryState()
    put(state, "base", 1, [], "1")
    put(state, "left", 1, [to("base", name="b1")], "2")
    put(state, "right", 1, [to("base", name="b2"), to("left")], "3")
    names = list(Needs(state).of("x", (to("right"), to("base"))))
    assert names == ["b2", "b1", "left", "right", "base"]


@pytest.mark.parametrize("bound", ["STEPS_MAX", "DEPENDENCIES_MAX", "TEXT_CHARS_MAX"])
def test_a_question_that_pulls_in_too_much_is_refused(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state = RegistryState()
    put(state, "a", 1, [])
    put(state, "b", 1, [to("a")])
    monkeypatch.setattr(references, bound, 1)
    with pytest.raises(RegistryError, match="more than 1"):
        Needs(state).of("x", (to("b"), to("a")))


def test_the_bound_is_for_the_question_and_not_for_each_of_its_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    state = RegistryState()
    put(state, "a", 1, [])
    monkeypatch.setattr(references, "STEPS_MAX", 3)
    needs = Needs(state)
    for count in (1, 2):
        needs.of("x", (to("a"),) * count)
    with pytest.raises(RegistryError, match="references"):
        needs.of("x", (to("a"),) * 3)


def test_a_circle_that_a_topic_has_ends() -> None:
    state = RegistryState()
    put(state, "a", 1, [to("b")])
    put(state, "b", 1, [to("a")])
    with pytest.raises(RegistryError, match="needs itself"):
        Needs(state).of("x", (to("a"),))


def test_a_question_sends_each_text_once() -> None:
    long = "x" * 100_000
    rows = tuple((Version("s", number, number, long), {"a": long, "b": long}) for number in range(1, 50))
    lines = list(Question("AVRO", long, {"a": long}, earlier=rows).parts())
    assert len(lines) == 2
    assert sum(map(len, lines)) < 2 * len(long)


def test_a_stored_reference_without_a_number_holds_all_versions() -> None:
    state = RegistryState()
    put(state, "t", 1, [])
    put(state, "t", 2, [])
    put(state, "u", 1, [to("t", -1)])
    assert [[row.subject for row in state.referrers("t", number)] for number in (1, 2)] == [["u"], ["u"]]
    assert list(Needs(state).of("x", (to("t", -1),))) == ["t"]


@pytest.mark.parametrize("version", [0, -2, 2**31, 1e300, 1.5, True, None, "x", [], {}])
def test_a_reference_to_no_version_is_refused(version: Any) -> None:
    with pytest.raises(RegistryError) as caught:
        asked_from({"schema": "x", "references": [{"name": "a", "subject": "b", "version": version}]})
    assert caught.value.code in (42201, 42202)


@pytest.mark.parametrize("latest", [-1, "latest"])
async def test_the_latest_version_is_the_one_there_is_when_the_reference_is_written(latest: Any) -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("POST", "/subjects/t/versions", {"schema": json.dumps(RECORD)})
        row = {"name": "T", "subject": "t", "version": latest}
        body = {"schema": json.dumps(OUTER), "references": [row]}
        made = (await ask("POST", "/subjects/u/versions", body))[1]
        kept = (await ask("GET", "/subjects/u/versions/1"))[1]
        assert kept["references"] == [row | {"version": 1}]
        assert (await ask("GET", "/subjects/t/versions/1/referencedby"))[1] == [made["id"]]
        assert (await ask("POST", "/subjects/u", body))[1]["version"] == 1
        before = await ask("GET", "/subjects/u/versions/1?format=resolved")
        await ask("POST", "/subjects/t/versions", {"schema": json.dumps(GROWN)})
        assert await ask("GET", "/subjects/u/versions/1?format=resolved") == before
        assert (await ask("DELETE", "/subjects/t/versions/1"))[0] == 42206
        # It is another schema now, and a compatible one.
        assert (await ask("POST", "/subjects/u", body))[0] == 40403
        assert (await ask("POST", "/compatibility/subjects/u/versions/latest", body))[1] == {"is_compatible": True}
        assert (await ask("POST", "/subjects/u/versions", body))[1]["version"] == 2
        missing = body | {"references": [row | {"subject": "nothing"}]}
        assert (await ask("POST", "/subjects/u/versions", missing))[0] == 42201
