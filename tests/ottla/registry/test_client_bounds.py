"""A client of registries meets a faulty or hostile registry."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pytest

from ottla.registry import client
from ottla.registry.client import RegistryClient, RegistryFailed
from tests.ottla.registry.stand_in import registry_of


class Endless(dict[str, Any]):
    """Each version needs the next one. Their numbers are made when they are requested."""

    def __init__(self, text: str, width: int = 1) -> None:
        self.text, self.width = text, width

    def __contains__(self, path: object) -> bool:
        return True

    def get(self, path: str, default: Any = None) -> Any:
        number = int(path.rpartition("/")[2])
        rows = [
            {"name": f"n{number}-{n}", "subject": "s", "version": number * self.width + n} for n in range(self.width)
        ]
        return {"id": number, "schema": self.text, "references": [row for row in rows if row["version"] != number]}


@pytest.mark.parametrize(("text", "width"), [('"int"', 2), ("x" * 300_000, 2)], ids=["many", "long"])
def test_what_one_schema_needs_has_bounds(text: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "DEPENDENCIES_MAX", 40)
    monkeypatch.setattr(client, "DEPENDENCY_BYTES_MAX", 1_000_000)
    with registry_of(Endless(text, width)) as (url, asked), pytest.raises(RegistryFailed, match="needs more than 40"):
        RegistryClient(url).schema(1)
    assert len(asked) <= (6 if len(text) > 10 else 42)


def test_a_long_chain_of_references_is_read_in_its_order() -> None:
    length = 450
    rows = {
        f"/subjects/s/versions/{number}": {
            "schema": f"{number}",
            "references": [{"name": f"n{number - 1}", "subject": "s", "version": number - 1}] if number else [],
        }
        for number in range(length)
    }
    rows["/schemas/ids/1"] = rows.pop(f"/subjects/s/versions/{length - 1}")
    limit = sys.getrecursionlimit()
    with registry_of(rows) as (url, _):
        sys.setrecursionlimit(400)
        try:
            found = RegistryClient(url).schema(1)
        finally:
            sys.setrecursionlimit(limit)
    assert [*found.dependencies.items()] == [(f"n{number}", f"{number}") for number in range(length - 1)]


WRONG: dict[str, Any] = {
    "no schema": {"id": 1},
    "a list": [],
    "nothing": None,
    "a number as references": {"schema": "x", "references": 3},
    "a reference without a name": {"schema": "x", "references": [{"subject": "s"}]},
    "a text that is none": {"schema": "x", "references": [{"name": "n", "subject": "s", "version": 1}]},
}


@pytest.mark.parametrize("name", WRONG)
def test_an_answer_that_is_no_schema_is_a_failure_of_the_registry(name: str) -> None:
    rows = {"/schemas/ids/1": WRONG[name], "/subjects/s/versions/1": {"schema": 3}}
    with registry_of(rows) as (url, _), pytest.raises(RegistryFailed, match="no schema"):
        RegistryClient(url).schema(1)


def test_nested_lists_without_an_end_are_a_failure_of_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    dumps: Callable[[Any], str] = json.dumps
    monkeypatch.setattr(json, "dumps", lambda value: "[" * 200_000 if value == "deep" else dumps(value))
    with registry_of({"/subjects": "deep"}) as (url, _), pytest.raises(RegistryFailed, match="cannot be reached"):
        RegistryClient(url).subjects()


def test_schemas_are_kept_up_to_a_bound_of_bytes_with_all_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 schemas of 32 MB with their references would be 128 GB."""
    monkeypatch.setattr(client, "CACHED_BYTES_MAX", 100_000)
    reference = [{"name": "n", "subject": "s", "version": 1}]
    rows: dict[str, Any] = {f"/schemas/ids/{n}": {"schema": "x" * 5_000, "references": reference} for n in range(40)}
    rows |= {"/subjects/s/versions/1": {"schema": "y" * 15_000}, "/schemas/ids/99": {"schema": "z" * 200_000}}
    with registry_of(rows) as (url, asked):
        made = RegistryClient(url)
        for number in range(40):
            made.schema(number)
            made.schema(number)
            assert made._schemas.bytes <= 100_000
        assert len(asked) == 80 and len(made._schemas) == 4
        made.schema(36)
        made.schema(99)  # it is larger than the bound, so it is not cached, and takes no room
        made.schema(99)
        assert len(asked) == 82 and len(made._schemas) == 4
        made.schema(0)
        made.schema(36)  # it was used recently, so 37 was dropped
        assert len(asked) == 84
        made.schema(37)
        assert len(asked) == 86
