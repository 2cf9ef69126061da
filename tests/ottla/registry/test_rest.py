"""The REST API with a real node: paths, parameters, responses and error codes."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

from tests.ottla.registry.instances import Instance

INT = {"schema": '"int"'}


def record(*fields: str) -> dict[str, str]:
    rows = [
        {"name": name.rstrip("?"), "type": "string"} | ({"default": ""} if name.endswith("?") else {})
        for name in fields
    ]
    return {"schema": json.dumps({"type": "record", "name": "R", "fields": rows})}


def test_the_life_of_a_subject(registry: Instance) -> None:
    ask, rejected = registry.ask, registry.rejected
    first: Any = ask("POST", "/subjects/life/versions", record("a"))
    assert ask("POST", "/subjects/life/versions", record("a")) == first
    assert rejected("POST", "/subjects/life/versions", record("a", "b")) == 40901
    second: Any = ask("POST", "/subjects/life/versions", record("a", "b?"))
    assert (second["id"], second["version"]) == (first["id"] + 1, 2)
    assert ask("GET", "/subjects/life/versions") == [1, 2]
    latest: Any = ask("GET", "/subjects/life/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"]) == ("life", 2, second["id"])
    assert "schemaType" not in latest
    assert ask("GET", "/subjects/life/versions/1/schema") == json.loads(record("a")["schema"])
    found: Any = ask("GET", f"/schemas/ids/{second['id']}?fetchMaxId=true")
    assert (json.loads(found["schema"])["name"], found["maxId"]) == ("R", second["id"])
    assert ask("GET", f"/schemas/ids/{second['id']}/versions") == [{"subject": "life", "version": 2}]
    assert ask("GET", f"/schemas/ids/{second['id']}/subjects") == ["life"]
    guid: Any = ask("GET", f"/schemas/guids/{second['guid']}/ids")
    assert guid == [{"context": ".", "id": second["id"]}]
    looked_up: Any = ask("POST", "/subjects/life", record("a"))
    assert looked_up["version"] == 1
    assert rejected("POST", "/subjects/life", INT) == 40403
    assert rejected("POST", "/subjects/nothing", INT) == 40401
    assert ask("DELETE", "/subjects/life/versions/2") == 2
    assert rejected("GET", "/subjects/life/versions/2") == 40402
    assert ask("GET", "/subjects/life/versions?deleted=true") == [1, 2]
    deleted: Any = ask("GET", "/subjects/life/versions/2?deleted=true")
    assert deleted["deleted"] is True
    assert ask("GET", f"/schemas/ids/{second['id']}/subjects") == []
    assert ask("DELETE", "/subjects/life") == [1]
    assert rejected("DELETE", "/subjects/life") == 40404
    assert ask("DELETE", "/subjects/life?permanent=true") == [1, 2]
    assert rejected("GET", f"/schemas/ids/{second['id']}") == 40403


def test_configurations_modes_and_compatibility(registry: Instance) -> None:
    ask, rejected = registry.ask, registry.rejected
    assert ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert rejected("GET", "/config/conf") == 40408
    assert ask("GET", "/config/conf?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert ask("PUT", "/config/conf", {"compatibility": "forward"}) == {"compatibility": "FORWARD"}
    assert rejected("PUT", "/config/conf", {"compatibility": "sideways"}) == 42203
    ask("POST", "/subjects/conf/versions", record("a"))
    check = "/compatibility/subjects/conf/versions"
    assert ask("POST", f"{check}/latest", record("a", "b")) == {"is_compatible": True}
    verbose: Any = ask("POST", f"{check}/1?verbose=true", record("b"))
    assert verbose["is_compatible"] is False
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in verbose["messages"][0]
    assert ask("POST", check, record("b")) == {"is_compatible": False}
    assert rejected("POST", f"{check}/9", record("b")) == 40402
    assert rejected("POST", "/compatibility/subjects/none/versions/1", record("b")) == 40402
    assert rejected("POST", f"{check}/1", {"schema": "{"}) == 42201
    assert ask("DELETE", "/config/conf") == {"compatibilityLevel": "FORWARD"}
    assert rejected("DELETE", "/config/conf") == 40408
    assert rejected("GET", "/mode/conf") == 40409
    assert ask("PUT", "/mode/conf", {"mode": "READONLY"}) == {"mode": "READONLY"}
    assert rejected("POST", "/subjects/conf/versions", record("a", "b?")) == 42205
    assert rejected("PUT", "/mode/conf", {"mode": "none"}) == 42204
    assert ask("DELETE", "/mode/conf") == {"mode": "READONLY"}


def test_references_in_the_three_formats(registry: Instance) -> None:
    ask, rejected = registry.ask, registry.rejected
    inner = {"schema": 'syntax = "proto3"; package p; message In { int32 n = 1; }', "schemaType": "PROTOBUF"}
    outer = {"schema": 'syntax = "proto3"; import "in.proto"; message Out { p.In in = 1; }', "schemaType": "PROTOBUF"}
    reference = {"name": "in.proto", "subject": "ref-in", "version": 1}
    ask("POST", "/subjects/ref-in/versions", inner)
    assert rejected("POST", "/subjects/ref-out/versions", outer) == 42201
    made: Any = ask("POST", "/subjects/ref-out/versions", outer | {"references": [reference]})
    assert ask("GET", "/subjects/ref-in/versions/1/referencedby") == [made["id"]]
    assert rejected("DELETE", "/subjects/ref-in") == 42206
    found: Any = ask("GET", "/subjects/ref-out/versions/1")
    assert found["references"] == [reference]
    assert found["schema"].startswith('syntax = "proto3";\n\nimport "in.proto";\n\nmessage Out {\n')
    assert registry.client.schema(made["id"]).dependencies["in.proto"].startswith('syntax = "proto3";\npackage p;')
    ask("POST", "/subjects/ref-json/versions", {"schema": '{"type":"string"}', "schemaType": "JSON"})
    by_name = {"schema": '{"properties":{"a":{"$ref":"x.json"}}}', "schemaType": "JSON"}
    assert rejected("POST", "/subjects/ref-json2/versions", by_name) == 42201
    ask(
        "POST",
        "/subjects/ref-json2/versions",
        by_name | {"references": [{"name": "x.json", "subject": "ref-json", "version": 1}]},
    )


def test_contexts_in_subjects_and_in_paths(registry: Instance) -> None:
    ask = registry.ask
    made: Any = ask("POST", "/subjects/:.ctx:a/versions", record("in_context"))
    assert made["id"] == 1
    contexts: Any = ask("GET", "/contexts")
    assert ".ctx" in contexts
    assert ask("GET", "/contexts/.ctx/subjects") == [":.ctx:a"]
    assert ask("GET", "/contexts/.ctx/subjects/a/versions") == [1]
    found: Any = ask("GET", "/contexts/.ctx/schemas/ids/1")
    assert found["subject"] == ":.ctx:a"
    assert ask("PUT", "/contexts/.ctx/config", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert ask("GET", "/config/:.ctx:a?defaultToGlobal=true") == {"compatibilityLevel": "NONE"}
    assert ask("GET", "/subjects?subjectPrefix=:.ctx:") == [":.ctx:a"]


def test_normalized_schemas_are_one(registry: Instance) -> None:
    one = {"schema": '{"type":"object","title":"t"}', "schemaType": "JSON"}
    other = {"schema": '{"title":"t", "type":"object"}', "schemaType": "JSON"}
    first: Any = registry.ask("POST", "/subjects/normal/versions?normalize=true", one)
    assert registry.ask("POST", "/subjects/normal/versions?normalize=true", other) == first
    assert registry.rejected("POST", "/subjects/normal", one | {"schema": '{"type":"object","title":"u"}'}) == 40403


def test_bad_input_is_answered_with_confluents_codes_and_writes_nothing(registry: Instance) -> None:
    rejected = registry.rejected
    before = registry.ask("GET", "/subjects")
    assert rejected("GET", "/subjects/none/versions") == 40401
    assert rejected("GET", "/subjects/none/versions/1") == 40401
    assert rejected("GET", "/subjects/none/versions/x") == 42202
    assert rejected("GET", "/schemas/ids/999999") == 40403
    assert rejected("GET", "/schemas/ids/x") == 404
    assert rejected("GET", "/nothing/here") == 404
    assert rejected("PUT", "/subjects") == 405
    assert rejected("POST", "/subjects/bad/versions", {"schema": "{"}) == 42201
    assert rejected("POST", "/subjects/bad/versions", {"schema": '"int"', "schemaType": "XML"}) == 42201
    assert rejected("POST", "/subjects/bad/versions", []) == 400
    assert rejected("POST", "/subjects/__GLOBAL/versions", INT) == 42208
    assert rejected("POST", "/subjects/bad/versions", {"schema": '{"type":"array","items":' * 4000}) == 42201
    assert rejected("POST", "/subjects/bad/versions", {"schema": '"' + "x" * 1_500_000 + '"'}) == 42209
    assert rejected("POST", "/subjects/bad/versions", {"schema": "x" * 5_000_000}) == 413
    itself = {"schema": '"x"', "references": [{"name": "x", "subject": "bad", "version": 1}]}
    assert rejected("POST", "/subjects/bad/versions", itself) == 42201
    assert registry.ask("GET", "/subjects") == before


def test_answers_have_the_media_type_of_schema_registries(registry: Instance) -> None:
    with urllib.request.urlopen(f"{registry.url}/subjects") as response:
        assert response.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"
