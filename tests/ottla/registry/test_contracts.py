"""Metadata and rule sets: a new version gets those of the former one and of the configuration, as in Confluent's registry."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.ottla.registry.memory import Client, leader

OWNER = {"properties": {"owner": "shop"}}
RULE = {"name": "r", "kind": "CONDITION", "type": "CEL", "mode": "WRITE", "expr": "true"}


def record(*names: str) -> str:
    fields = [{"name": name, "type": ["null", "int"], "default": None} for name in names]
    return json.dumps({"type": "record", "name": "R", "fields": fields})


def body(*names: str, **rest: Any) -> dict[str, Any]:
    return {"schema": record(*names), **rest}


async def test_a_serializer_without_metadata_finds_the_version_that_has_them() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        made = (await ask("POST", "/subjects/s/versions", body("a", metadata=OWNER, ruleSet={"domainRules": [RULE]})))[
            1
        ]
        again = (await ask("POST", "/subjects/s/versions", body("a")))[1]
        assert (again["id"], again["version"]) == (made["id"], made["version"]) == (1, 1)
        found = await ask("POST", "/subjects/s", body("a"))
        assert (found[0], found[1]["version"], found[1]["metadata"]) == (200, 1, OWNER)
        assert (await ask("POST", "/subjects/s", body("b")))[0] == 40403


async def test_a_new_version_has_the_metadata_and_rules_of_the_one_before() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("POST", "/subjects/s/versions", body("a", metadata=OWNER, ruleSet={"domainRules": [RULE]}))
        await ask("POST", "/subjects/s/versions", body("a", "b"))
        latest = (await ask("GET", "/subjects/s/versions/latest"))[1]
        assert (latest["version"], latest["metadata"], latest["ruleSet"]) == (2, OWNER, {"domainRules": [RULE]})


async def test_a_version_without_a_text_has_that_of_the_one_before() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        assert (await ask("POST", "/subjects/s/versions", {"metadata": OWNER}))[0] == 42201
        await ask("POST", "/subjects/s/versions", body("a"))
        assert (await ask("POST", "/subjects/s/versions", {"metadata": OWNER}))[1]["version"] == 2
        first, second = [(await ask("GET", f"/subjects/s/versions/{number}"))[1] for number in (1, 2)]
        assert first["schema"] == second["schema"] and first["id"] != second["id"]


async def test_the_configuration_has_defaults_and_what_overrides_a_requests_metadata() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        config = {
            "defaultMetadata": {"properties": {"team": "a", "tier": "1"}, "sensitive": ["x"]},
            "overrideMetadata": {"properties": {"tier": "3"}, "sensitive": ["w"]},
            "defaultRuleSet": {"domainRules": [RULE | {"expr": "false"}, {"name": "other"}]},
        }
        assert (await ask("PUT", "/config/s", config))[0] == 200
        await ask("POST", "/subjects/s/versions", body("a", metadata=OWNER, ruleSet={"domainRules": [RULE]}))
        latest = (await ask("GET", "/subjects/s/versions/latest"))[1]
        assert latest["metadata"]["properties"] == {"owner": "shop", "team": "a", "tier": "3"}
        assert latest["metadata"]["sensitive"] == ["w", "x"]
        assert latest["ruleSet"] == {"domainRules": [{"name": "other"}, RULE]}


async def test_metadata_that_name_their_version_have_its_number() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        versioned = {"properties": {"confluent:version": "1"}}
        await ask("POST", "/subjects/s/versions", body("a", metadata=versioned))
        assert (await ask("POST", "/subjects/s/versions", body("a", "b")))[1]["version"] == 2
        assert (await ask("GET", "/subjects/s/versions/2"))[1]["metadata"]["properties"] == {"confluent:version": "2"}
        assert (await ask("POST", "/subjects/s/versions", body("a")))[1]["version"] == 1


async def test_what_is_imported_gets_nothing() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("PUT", "/config/s", {"defaultMetadata": OWNER})
        await ask("PUT", "/mode/s", {"mode": "IMPORT"})
        await ask("POST", "/subjects/s/versions", body("a", id=7, version=3))
        assert "metadata" not in (await ask("GET", "/subjects/s/versions/3"))[1]


@pytest.mark.parametrize(
    "wrong", [5, [], {"properties": 1}, {"properties": {"a": 1}}, {"tags": {"a": 1}}, {"sensitive": {}}]
)
async def test_metadata_of_another_shape_are_refused_wherever_they_come_in(wrong: Any) -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        assert (await ask("POST", "/subjects/s/versions", body("a", metadata=wrong)))[0] == 42201
        assert (await ask("PUT", "/config/s", {"defaultMetadata": wrong}))[0] == 42201


async def test_rules_of_another_shape_and_fields_that_nothing_validates_are_refused() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        for wrong in (1, {"domainRules": 1}, {"migrationRules": [1]}):
            assert (await ask("POST", "/subjects/s/versions", body("a", ruleSet=wrong)))[0] == 42201
            assert (await ask("PUT", "/config", {"overrideRuleSet": wrong}))[0] == 42201
        assert (await ask("PUT", "/config", {"validateFields": True}))[0] == 42205
        assert (await ask("PUT", "/config", {"validateFields": False}))[0] == 200


async def test_the_answer_about_the_server_has_the_clusters_id() -> None:
    async with leader() as (_, application):
        made = (await Client(application).ask("GET", "/v1/metadata/id"))[1]
        assert made == {
            "scope": {"path": [], "clusters": {"kafka-cluster": "XYZ", "schema-registry-cluster": "schema-registry"}},
            "id": "",
        }
