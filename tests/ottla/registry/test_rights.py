"""A user without permissions sees and changes nothing else: all rows of the table of paths, and all fields that name a subject."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from ottla.registry.access import Access, read_permissions
from ottla.registry.registry import NOT_READABLE
from ottla.registry.rest.app import PATHS
from tests.ottla.registry.memory import Client, leader

SECRET = {"type": "record", "name": "Secret", "fields": [{"name": "credit_card_of_the_king", "type": "string"}]}
MINE = {"type": "record", "name": "Mine", "fields": [{"name": "s", "type": "Secret"}]}
PERMISSIONS = "alice alice-* all\nwriter secret-* write\nadmin * all\n"
TO_SECRET = [{"name": "Secret", "subject": "secret-value", "version": 1}]
OVER_BRIDGE = [{"name": "Bridge", "subject": "alice-bridge", "version": 1}]
HIDDEN = ("secret", "credit_card", ".vault")
DENIED, NOWHERE = {40301}, {404, 40401, 40402, 40403}
OPEN = {200}
#: The response to each request of alice, with the subject secret-value in the path, or the id and GUID of its schema. A path
#: without a subject may be open, but then shows nothing about this one.
EXPECTED = {
    "GET /": OPEN,
    "POST /": OPEN,
    "GET /subjects": OPEN,
    "POST /subjects/{subject}": DENIED,
    "DELETE /subjects/{subject}": DENIED,
    "GET /subjects/{subject}/metadata": DENIED,
    "GET /subjects/{subject}/versions": DENIED,
    "POST /subjects/{subject}/versions": DENIED,
    "GET /subjects/{subject}/versions/{version}": DENIED,
    "DELETE /subjects/{subject}/versions/{version}": DENIED,
    "GET /subjects/{subject}/versions/{version}/schema": DENIED,
    "GET /subjects/{subject}/versions/{version}/referencedby": DENIED,
    "GET /schemas": OPEN,
    "GET /schemas/types": OPEN,
    "GET /schemas/ids/{id}": NOWHERE,
    "GET /schemas/ids/{id}/schema": NOWHERE,
    "GET /schemas/ids/{id}/subjects": NOWHERE,
    "GET /schemas/ids/{id}/versions": NOWHERE,
    "GET /schemas/guids/{guid}": NOWHERE,
    "GET /schemas/guids/{guid}/ids": OPEN,
    "POST /compatibility/subjects/{subject}/versions": DENIED,
    "POST /compatibility/subjects/{subject}/versions/{version}": DENIED,
    "GET /config": DENIED,
    "PUT /config": DENIED,
    "DELETE /config": DENIED,
    "GET /config/{subject}": DENIED,
    "PUT /config/{subject}": DENIED,
    "DELETE /config/{subject}": DENIED,
    "GET /mode": DENIED,
    "PUT /mode": DENIED,
    "DELETE /mode": DENIED,
    "GET /mode/{subject}": DENIED,
    "PUT /mode/{subject}": DENIED,
    "DELETE /mode/{subject}": DENIED,
    "GET /contexts": OPEN,
    "GET /v1/metadata/id": OPEN,
    "GET /v1/metadata/version": OPEN,
}


@pytest.fixture
async def users() -> AsyncIterator[dict[str, Client]]:
    logins = {name: f"{name}-pw" for name in ("alice", "writer", "admin")}
    async with leader(Access(logins, read_permissions(PERMISSIONS))) as (_, application):
        clients = {name: Client(application, name) for name in logins}
        admin = clients["admin"]
        secret = {"schema": json.dumps(SECRET)}
        bridge = {"schema": json.dumps(MINE | {"name": "Bridge"}), "references": TO_SECRET}
        for subject, body in (("secret-value", secret), ("alice-bridge", bridge), (":.vault:secret-value", secret)):
            assert (await admin.ask("POST", f"/subjects/{subject}/versions", body))[0] == 200
        yield clients


def shown(answer: object) -> list[str]:
    return [word for word in HIDDEN if word in json.dumps(answer)]


async def test_each_path_hides_what_the_user_may_not_read(users: dict[str, Client]) -> None:
    guid = (await users["admin"].ask("GET", "/schemas/ids/1"))[1]["guid"]
    named = {"subject": "secret-value", "version": "1", "id": "1", "guid": guid}
    for row in PATHS:
        name = f"{row.method} {row.path}"
        assert name in EXPECTED, "a new path needs a row: what does a user without rights get?"
        body = {"schema": '"int"', "compatibility": "NONE", "mode": "READWRITE"}
        code, answer = await users["alice"].ask(row.method, row.path.format(**named), body)
        assert code in EXPECTED[name], name
        # The schema that she may read refers by name to the secret one.
        assert code != 200 or shown(answer) == (["secret"] if row.path == "/schemas" else []), name
    assert (await users["admin"].ask("GET", "/subjects/secret-value/versions"))[1] == [1]


@pytest.mark.parametrize("rows", [TO_SECRET, OVER_BRIDGE], ids=["directly", "over a schema that the user may read"])
@pytest.mark.parametrize("version", [1, -1])
@pytest.mark.parametrize(
    "path", ["/subjects/alice-x/versions", "/subjects/alice-x", "/compatibility/subjects/alice-x/versions?verbose=true"]
)
async def test_references_of_a_request_need_read(
    path: str, version: int, rows: list[dict[str, object]], users: dict[str, Client]
) -> None:
    alice = users["alice"]
    await alice.ask("POST", "/subjects/alice-x/versions", {"schema": '"int"'})
    body = {"schema": json.dumps(MINE), "references": [row | {"version": version} for row in rows]}
    code, answer = await alice.ask("POST", path, body)
    other = {"schema": json.dumps(MINE), "references": [rows[0] | {"subject": "nothing", "version": version}]}
    missing_code, missing = await alice.ask("POST", path, other)
    assert code == missing_code and code in (42201, 200)
    text = json.dumps(missing).replace("nothing", "secret-value")
    # The version in the bridge is its own.
    assert json.dumps(answer) in (text, text.replace("version -1", "version 1"))
    assert (await users["admin"].ask("GET", "/subjects/secret-value/versions/1/referencedby"))[1] == [2]


@pytest.mark.parametrize(
    "place", ["/subjects/alice-bridge/versions/1", "/schemas/ids/2", "/subjects/alice-bridge/metadata"]
)
async def test_a_resolved_text_needs_read_on_all_that_it_shows(place: str, users: dict[str, Client]) -> None:
    code, answer = await users["alice"].ask("GET", f"{place}?format=resolved")
    assert code == 42201
    assert "credit_card" not in json.dumps(answer)
    assert "credit_card" in json.dumps((await users["admin"].ask("GET", f"{place}?format=resolved"))[1])


async def test_an_earlier_version_is_compared_only_for_those_who_may_read_what_it_needs(
    users: dict[str, Client],
) -> None:
    body = {"schema": json.dumps(MINE | {"name": "Bridge", "fields": []})}
    for path in ("/compatibility/subjects/alice-bridge/versions", "/subjects/alice-bridge/versions"):
        code, answer = await users["alice"].ask("POST", path, body)
        assert (code, "credit_card" in json.dumps(answer)) == (42201, False)


async def test_who_may_write_and_not_read_is_not_shown_the_old_schema(users: dict[str, Client]) -> None:
    new = {"schema": json.dumps(SECRET | {"fields": [{"name": "z", "type": "int"}]})}
    code, answer = await users["writer"].ask("POST", "/subjects/secret-value/versions", new)
    assert code == 40901
    assert NOT_READABLE in answer["message"] and "credit_card" not in answer["message"]
    assert "credit_card" in (await users["admin"].ask("POST", "/subjects/secret-value/versions", new))[1]["message"]


async def test_an_alias_needs_the_rights_on_what_it_stands_for(users: dict[str, Client]) -> None:
    alice = users["alice"]
    assert (await alice.ask("PUT", "/config/alice-alias", {"alias": "secret-value"}))[0] == 200
    for row in PATHS:
        if "/subjects/{subject}" in row.path:
            path = row.path.format(subject="alice-alias", version=1)
            assert (await alice.ask(row.method, path, {"schema": '"int"'}))[0] == 40301
    assert (await alice.ask("GET", "/schemas/ids/1?subject=alice-alias"))[0] == 40403
    admin = (await users["admin"].ask("GET", "/subjects/alice-alias/versions/latest"))[1]
    assert admin["subject"] == "secret-value"


@pytest.mark.parametrize(
    "path",
    [
        "/subjects?subjectPrefix=secret",
        "/subjects?subjectPrefix=:.vault:",
        "/subjects?deleted=true",
        "/schemas?subjectPrefix=secret",
        "/schemas/ids/1?subject=secret-value",
        "/schemas/ids/1?subject=:.vault:",
        "/contexts/.vault/schemas/ids/1",
        "/contexts/.vault/subjects",
        "/contexts/.vault/subjects/secret-value/versions",
    ],
)
async def test_query_parameters_that_name_a_subject_show_nothing(path: str, users: dict[str, Client]) -> None:
    answer = (await users["alice"].ask("GET", path))[1]
    assert shown(answer.get("schema", "") if isinstance(answer, dict) else answer) == []


async def test_a_schema_that_two_subjects_share_is_shown_under_the_readable_one(users: dict[str, Client]) -> None:
    alice = users["alice"]
    assert (await alice.ask("POST", "/subjects/alice-copy/versions", {"schema": json.dumps(SECRET)}))[1]["id"] == 1
    assert (await alice.ask("GET", "/schemas/ids/1"))[1]["subject"] == "alice-copy"
    assert (await alice.ask("GET", "/schemas/ids/1/subjects"))[1] == ["alice-copy"]
