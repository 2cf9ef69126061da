"""Numbers from outside, at each place where the API takes one: none is an error of the server, and none is above int32."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry import schema_records as records
from ottla.registry.numbers import int32
from ottla.registry.registry_state import RegistryState
from ottla.registry.schema_records import Version
from tests.ottla.registry.memory import Client, leader

LONG = "9" * 5_000
IN_JSON = [
    "2147483648",
    "-2147483649",
    "1e300",
    "1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    "true",
    '"x"',
    f'"{LONG}"',
    LONG,
    "1.5",
    "[]",
    "{}",
]
IN_PATHS = ["2147483648", "-2147483649", LONG, "1e3", "NaN", "1.0", "%D9%A1", "0x1", "1_0", "", "%20"]


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, 1), (1.0, 1), (1e3, 1000), ("7", 7), (" 7 ", 7), (2**31 - 1, 2**31 - 1), (2**31, None), (True, None),
     (float("inf"), None), (float("nan"), None), (1.5, None), ("1_0", None), ("٣", None), (LONG, None), (None, None)],
)  # fmt: skip
def test_a_number_of_32_bits(value: object, number: int | None) -> None:
    assert int32(value) == number


async def test_no_number_of_a_request_is_an_error_of_the_server() -> None:
    async with leader() as (registry, application):
        ask = Client(application).ask
        await ask("PUT", "/mode/s", {"mode": "IMPORT"})
        answers: dict[str, int] = {}
        for text in IN_JSON:
            for body in (
                '{"schema": "\\"int\\"", "id": %s, "version": 1}',
                '{"schema": "\\"int\\"", "id": 1, "version": %s}',
                '{"schema": "\\"int\\"", "references": [{"name": "a", "subject": "b", "version": %s}]}',
            ):
                for path in ("/subjects/s/versions", "/compatibility/subjects/s/versions"):
                    answers[f"{path} {body % text[:30]}"] = (await ask("POST", path, (body % text).encode()))[0]
        for text in IN_PATHS:
            for method, path in (
                ("GET", f"/schemas/ids/{text}"),
                ("GET", f"/subjects/s/versions/{text}"),
                ("DELETE", f"/subjects/s/versions/{text}"),
                ("GET", f"/subjects?offset={text}&limit={text}"),
            ):
                answers[f"{method} {path[:50]}"] = (await ask(method, path))[0]
        assert {name: code for name, code in answers.items() if code >= 50000 or code == 500} == {}
        assert registry.state.subjects(deleted=True) == []


async def test_an_imported_id_above_int32_is_refused_and_takes_no_ids() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("PUT", "/mode/my-x", {"mode": "IMPORT"})
        for schema_id in (2**31, 10**23, 0, -7):
            body = {"schema": '"bytes"', "id": schema_id, "version": 1}
            assert (await ask("POST", "/subjects/my-x/versions", body))[0] == 42201
        assert (await ask("POST", "/subjects/my-x/versions", {"schema": '"bytes"', "id": 5, "version": 2**31}))[
            0
        ] == 42202
        assert (await ask("POST", "/subjects/other/versions", {"schema": '"int"'}))[1]["id"] == 1


async def test_no_id_and_no_version_is_given_beyond_int32() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("PUT", "/mode/a", {"mode": "IMPORT"})
        last = {"schema": '"bytes"', "id": 2**31 - 1, "version": 2**31 - 1}
        assert (await ask("POST", "/subjects/a/versions", last))[0] == 200
        code, answer = await ask("POST", "/subjects/b/versions", {"schema": '"int"'})
        assert (code, "no id is left" in answer["message"]) == (42205, True)
        # A schema with an id already needs no new one.
        assert (await ask("POST", "/subjects/b/versions", {"schema": '"bytes"'}))[1]["id"] == 2**31 - 1
        await ask("DELETE", "/mode/a")
        await ask("PUT", "/config/a", {"compatibility": "NONE"})
        assert (await ask("POST", "/subjects/a/versions", {"schema": '"int"'}))[0] == 42205


@pytest.mark.parametrize("name", ["id", "version"])
@pytest.mark.parametrize("number", [2**31, -1, 1.5, True, "x", 10**30])
def test_a_record_whose_numbers_are_none_is_passed_over_and_said(
    name: str, number: Any, caplog: pytest.LogCaptureFixture
) -> None:
    state = RegistryState()
    key, value = records.schema_record(Version("s", 1, 1, '"int"'))
    assert value is not None
    state.replay(key, json.dumps(json.loads(value) | {name: number}).encode())
    assert (state.id_max("."), state.unreadable, state.subjects()) == (0, 1, [])
    assert f"its {name} is no number" in caplog.text
