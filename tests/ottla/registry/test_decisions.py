"""The decisions for requests, and the records of them when they are replayed: ids, versions, deletions, modes, references."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from ottla.registry import decisions
from ottla.registry import schema_records as records
from ottla.registry.decisions import Asked, asked_from
from ottla.registry.errors import RegistryError
from ottla.registry.references import Needs
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Record
from ottla.registry.subjects import in_same_context, is_valid, normal, scopes

INT, LONG, STRING = (Asked(f'"{name}"', "AVRO", ()) for name in ("int", "long", "string"))


class Book:
    """A state, and the records from which it was replayed."""

    def __init__(self) -> None:
        self.state = RegistryState()
        self.rows: list[Record] = []

    def take(self, decided: tuple[Any, list[Record]]) -> Any:
        for row in decided[1]:
            self.state.replay(*row)
        self.rows += decided[1]
        return decided[0]

    def register(self, subject: str, asked: Asked) -> tuple[int, int]:
        version = self.take(decisions.register(self.state, subject, asked))
        return version.id, version.version


@pytest.fixture
def book() -> Book:
    return Book()


def rejected(code: int) -> Any:
    return pytest.raises(RegistryError, check=lambda fault: fault.code == code)


def test_a_schema_has_one_id_in_all_subjects_and_its_version_in_each(book: Book) -> None:
    assert book.register("a", INT) == (1, 1)
    assert book.register("a", LONG) == (2, 2)
    assert book.register("b", LONG) == (2, 1)
    assert book.register("a", INT) == (1, 1)
    assert len(book.rows) == 3


def test_records_are_those_of_confluents_registry(book: Book) -> None:
    book.register("a", INT)
    book.take(decisions.set_config(book.state, "", {"compatibility": "full"}))
    book.take(decisions.set_mode(book.state, "a", {"mode": "readonly"}, force=False))
    expected = [
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":1,"md5":"71JOobkecxc9k4reNsHbMg==","schema":"\\"int\\"","deleted":false}',
        ),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"subject":"a","mode":"READONLY"}'),
    ]
    assert book.rows == expected
    assert records.noop_record() == (b'{"keytype":"NOOP","magic":0}', None)


def test_records_of_other_versions_of_confluents_registry_are_read() -> None:
    state = RegistryState()
    state.replay(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"subject":null,"compatibilityLevel":"NONE"}')
    state.replay(
        b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}',
        b'{"subject":"s","version":1,"id":7,"schemaType":"JSON","references":[],"schema":"{}","deleted":false}',
    )
    state.replay(b'{"keytype":"NOOP","magic":0}', None)
    state.replay(b'{"keytype":"ASSOC","tenant":"default","magic":0}', b"{}")
    for key, value in (
        (None, None),
        (b"", b""),
        (b"[]", b"{}"),
        (b'{"keytype":"SCHEMA"}', b"{}"),
        (b"\xff", b"1"),
        (b"[" * 99999, None),
    ):
        state.replay(key, value)
    assert state.setting("", "compatibilityLevel") == "NONE"
    assert [row.kind for row in state.versions("s")] == ["JSON"]


def test_soft_deletion_hides_versions_and_keeps_ids_readable(book: Book) -> None:
    book.register("a", INT)
    book.register("a", LONG)
    assert book.take(decisions.delete_version(book.state, "a", -1, permanent=False)) == 2
    with rejected(40406):
        decisions.delete_version(book.state, "a", 2, permanent=False)
    assert [row.version for row in book.state.versions("a")] == [1]
    assert book.state.by_id(2, ".") is not None
    assert book.take(decisions.delete_subject(book.state, "a", permanent=False)) == [1]
    with rejected(40404):
        decisions.delete_subject(book.state, "a", permanent=False)
    # For a subject that is deleted as a whole: its versions are known, but none of them is the latest one.
    with rejected(40406):
        decisions.delete_version(book.state, "a", 1, permanent=False)
    for number, permanent in ((-1, False), (-1, True), (7, False)):
        with rejected(40402):
            decisions.delete_version(book.state, "a", number, permanent=permanent)
    with rejected(40401):
        decisions.delete_version(book.state, "b", 1, permanent=False)
    assert book.state.subjects() == []
    assert book.state.subjects(deleted=True) == ["a"]
    # The same schema returns with its id under a new version, which replaces the deleted one.
    assert book.register("a", INT) == (1, 3)
    assert [row.version for row in book.state.versions("a", deleted=True)] == [2, 3]


def test_hard_deletion_comes_after_soft_deletion_and_forgets_the_id(book: Book) -> None:
    book.register("a", INT)
    book.take(decisions.set_config(book.state, "a", {"compatibility": "NONE"}))
    with rejected(40407):
        decisions.delete_version(book.state, "a", 1, permanent=True)
    with rejected(40405):
        decisions.delete_subject(book.state, "a", permanent=True)
    book.take(decisions.delete_subject(book.state, "a", permanent=False))
    assert book.take(decisions.delete_subject(book.state, "a", permanent=True)) == [1]
    assert book.state.by_id(1, ".") is None
    assert book.state.configs == {}
    with rejected(40401):
        decisions.delete_subject(book.state, "a", permanent=True)
    # No id is given out a second time.
    assert book.register("b", LONG) == (2, 1)


def test_an_id_is_not_given_again_after_compaction_has_taken_its_schema(book: Book) -> None:
    """The former instances are gone, and a new one has only the topic: messages with the old id would be read with another
    schema.
    """
    book.register("a", INT)
    book.register(":.c:a", LONG)
    book.take(decisions.delete_subject(book.state, "a", permanent=False))
    book.take(decisions.delete_subject(book.state, "a", permanent=True))
    book.take(decisions.set_mode(book.state, ":.c:a", {"mode": "READWRITE"}, force=False))
    compacted = Book()
    for key, value in dict(book.rows).items():
        if value is not None:
            compacted.state.replay(key, value)
    assert compacted.state.unreadable == 0
    assert compacted.register("b", LONG) == (2, 1)
    assert compacted.register(":.c:b", INT) == (2, 1)
    # In the compacted topic a leader's NOOP replaces the one before it.
    assert records.noop_record(compacted.state.greatest_ids())[1] == b'{"greatestIds":{".":2,".c":2}}'
    for value in (b"[]", b"{}", b'{"greatestIds":{".":"x"}}', b'{"greatestIds":[1]}'):
        compacted.state.replay(b'{"keytype":"NOOP","magic":0}', value)
    assert (compacted.state.unreadable, compacted.state.greatest_ids()) == (4, {".": 2, ".c": 2})


def test_what_is_referred_to_is_not_deleted(book: Book) -> None:
    book.register("inner", INT)
    body = {"schema": '"x"', "references": [{"name": "x", "subject": "inner", "version": 1}]}
    book.register("outer", asked_from(body))
    for permanent in (False, True):
        with rejected(42206):
            book.take(decisions.delete_subject(book.state, "inner", permanent=False))
            decisions.delete_subject(book.state, "inner", permanent=permanent)
    book.take(decisions.delete_subject(book.state, "outer", permanent=False))
    book.take(decisions.delete_subject(book.state, "inner", permanent=False))
    # The deleted referrer may be registered again.
    with rejected(42206):
        decisions.delete_version(book.state, "inner", 1, permanent=True)


def test_references_that_are_missing_or_go_round_in_a_circle_are_rejected(book: Book) -> None:
    body = {"schema": '"x"', "references": [{"name": "x", "subject": "none", "version": 1}]}
    with rejected(42201):
        Needs(book.state).of("a", asked_from(body).references)
    # No request makes a circle, because a version is written after those it refers to. But a topic may have one.
    for subject, target in (("a", "b"), ("b", "a")):
        value = {
            "subject": subject,
            "version": 1,
            "id": 1,
            "schema": "x",
            "references": [{"name": target, "subject": target, "version": 1}],
        }
        book.state.replay(records.schema_key(subject, 1), json.dumps(value).encode())
    body["references"] = [{"name": "a", "subject": "a", "version": 1}]
    with rejected(42201):
        Needs(book.state).of("c", asked_from(body).references)


def test_only_the_mode_import_takes_ids_and_versions_from_the_request(book: Book) -> None:
    given = asked_from({"schema": '"int"', "id": 40, "version": 7})
    with rejected(42205):
        decisions.register(book.state, "a", given)
    book.take(decisions.set_mode(book.state, "a", {"mode": "IMPORT"}, force=False))
    assert book.register("a", given) == (40, 7)
    with rejected(42205):
        decisions.register(book.state, "a", LONG)
    with rejected(42205):
        decisions.register(book.state, "a", asked_from({"schema": '"long"', "id": 40, "version": 8}))
    book.take(decisions.delete_mode(book.state, "a"))
    assert book.register("b", LONG) == (41, 1)
    with rejected(42205):
        decisions.set_mode(book.state, "", {"mode": "IMPORT"}, force=False)


def test_a_read_only_subject_takes_no_writes(book: Book) -> None:
    book.register("a", INT)
    book.take(decisions.set_mode(book.state, "", {"mode": "READONLY"}, force=False))
    for write in (
        lambda: decisions.register(book.state, "a", LONG),
        lambda: decisions.delete_subject(book.state, "a", permanent=False),
        lambda: decisions.delete_version(book.state, "a", 1, permanent=False),
        lambda: decisions.set_config(book.state, "a", {"compatibility": "NONE"}),
    ):
        with rejected(42205):
            write()


def test_contexts_have_ids_of_their_own_and_settings_between_subject_and_all(book: Book) -> None:
    assert book.register("a", INT) == (1, 1)
    assert book.register(":.staging:a", LONG) == (1, 1)
    assert book.register(":.staging:b", INT) == (2, 1)
    assert sorted(book.state.contexts) == [".", ".staging"]
    assert book.state.subjects(":.staging:") == [":.staging:a", ":.staging:b"]
    book.take(decisions.set_config(book.state, ":.staging:", {"compatibility": "NONE"}))
    assert book.state.setting(":.staging:b", "compatibilityLevel") == "NONE"
    assert book.state.setting("b", "compatibilityLevel") is None
    found = book.state.by_id_anywhere(2, "b")
    assert found is not None and found.subject == ":.staging:b"


def test_wrong_bodies_are_rejected_with_confluents_codes() -> None:
    for body in (
        {},
        {"schema": ""},
        {"schema": 3},
        {"schema": "x", "schemaType": "XML"},
        {"schema": "x", "references": [{}]},
    ):
        with rejected(42201):
            asked_from(body)
    with rejected(42201):
        asked_from({"schema": "x", "references": [{"name": "a", "subject": "b", "version": "c"}]})
    with rejected(42202):
        asked_from({"schema": "x", "version": "y"})
    with rejected(400):
        asked_from([])
    with rejected(42203):
        decisions.set_config(RegistryState(), "", {"compatibility": "sideways"})
    with rejected(42204):
        decisions.set_mode(RegistryState(), "", {"mode": "WRITEONLY"}, force=False)


def test_names_of_subjects() -> None:
    assert normal(":.:a") == "a"
    assert scopes(":.c:a") == (":.c:a", ":.c:", "")
    assert in_same_context("b", ":.c:a") == ":.c:b"
    assert in_same_context(":.d:b", ":.c:a") == ":.d:b"
    assert [is_valid(name) for name in ("a b/c", "", "a\nb", "__GLOBAL", ":.c:x", ":.c:")] == [
        True,
        False,
        False,
        False,
        True,
        False,
    ]


def test_ten_thousand_schemas_load_in_two_seconds_and_are_found_in_a_millisecond() -> None:
    text = json.dumps(
        {"type": "record", "name": "R", "fields": [{"name": f"f{i}", "type": "string"} for i in range(20)]}
    )
    book = Book()
    rows: list[Record] = []
    for index in range(10_000):
        asked = Asked(text.replace("R", f"R{index}"), "AVRO", ())
        rows += decisions.register(book.state, f"s{index % 2000}", asked)[1]
        book.state.replay(*rows[-1])
    state = RegistryState()
    began = time.thread_time()
    for row in rows:
        state.replay(*row)
    load_s = time.thread_time() - began
    began = time.thread_time()
    for index in range(1, 10_001):
        assert state.by_id(index, ".") is not None
    lookup_ms = (time.thread_time() - began) / 10
    print(f"10000 schemas: {load_s:.2f} s of CPU; a lookup by id: {lookup_ms:.4f} ms")
    assert load_s < 2
    assert lookup_ms < 1
