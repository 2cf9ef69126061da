"""Records that the console writes: in each form of key and value, with schemas too. A rejected form comes back as it was."""

from __future__ import annotations

import asyncio
import json

from tests.ottla.conftest import Cli
from tests.ottla.console.conftest import Open, csrf_of
from tests.ottla.registry.instances import Instance


async def test_a_record_is_written_in_each_form_and_its_place_is_shown(open_console: Open, cli: Cli) -> None:
    name = cli.topic(partitions=3)
    client = await open_console(allow_changes=True)
    page = f"/topics/{name}/produce"
    token = {"csrf": await csrf_of(client, page), "key_as": "text"}
    for fields in (
        {"key": "k", "value": "v", "value_as": "text", "headers": "trace=a=b\u2028c\r\nflag", "partition": "2"},
        {"key": "00ff", "key_as": "hex", "value": ' {"n": 1.10}\r\n', "value_as": "json", "partition": "1"},
        {"key": "k", "value": "", "value_as": "null", "partition": "0"},
        {"key": "", "value": "", "value_as": "text", "partition": "0"},
    ):
        done = await client.post(page, data=token | fields)
        assert done.status_code == 303, done.text
        assert f"/topics/{name}/records?partition={fields['partition']}&from=offset" in done.headers["location"]
    written = await asyncio.to_thread(cli.rows, "consume", name)
    written.sort(key=lambda row: (row["partition"], row["offset"]))
    assert [(row.get("key"), row.get("value")) for row in written] == [
        ("k", None),
        (None, ""),
        (None, '{"n": 1.10}'),
        ("k", "v"),
    ]
    assert written[2]["key_base64"] == "AP8="
    assert written[3]["headers"] == [{"key": "trace", "value": "a=b\u2028c"}, {"key": "flag", "value": None}]
    shown = (await client.get(done.headers["location"])).text
    assert "(empty)" in shown


async def test_what_is_wrong_is_said_above_the_form_as_it_was(open_console: Open, cli: Cli) -> None:
    name = cli.topic()
    client = await open_console(allow_changes=True)
    page = f"/topics/{name}/produce"
    token = {"csrf": await csrf_of(client, page), "key_as": "text", "value_as": "text", "value": "kept <b>"}
    for fields, problem in (
        ({"value_as": "json"}, "the value is no JSON"),
        ({"value_as": "json", "value": "[" * 60_000}, "nested too deeply"),
        ({"value_as": "json", "value": '{"a": NaN}'}, "NaN is none of its values"),
        ({"value_as": "hex"}, "the value is not hex"),
        ({"value_as": "null"}, "is to be null"),
        ({"value_as": "schema"}, "has no schema registry"),
        ({"value_as": "x"}, "is no form of a value"),
        ({"partition": "7"}, "has no partition 7"),
        ({"partition": "-1"}, "is no partition"),
        ({"headers": "=x"}, "has no name"),
    ):
        refused = await client.post(page, data=token | fields)
        assert refused.status_code == 422 and problem in refused.text, (fields, refused.text)
        assert "kept &lt;b&gt;" in refused.text or "value" in fields
    gone = await client.post("/topics/none-such/produce", data=token)
    assert gone.status_code in (404, 422)
    assert "none-such" not in await asyncio.to_thread(cli.ok, "topic", "list")
    assert (await client.get("/topics/none-such/produce")).status_code == 404
    looking = await open_console()
    assert "only looks" in (await looking.get(page)).text
    assert (await looking.post(page, data=token)).status_code == 403


async def test_json_is_written_by_the_schemas_of_the_topic_and_read_back(
    open_console: Open, cli: Cli, registry: Instance
) -> None:
    name = cli.topic()
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    registry.ask("POST", f"/subjects/{name}-value/versions", {"schema": json.dumps(schema)})
    proto = 'syntax = "proto3"; message Key { string id = 1; }'
    registry.ask("POST", f"/subjects/{name}-key/versions", {"schema": proto, "schemaType": "PROTOBUF"})
    client = await open_console(allow_changes=True, registry=registry.url)
    page = f"/topics/{name}/produce"
    form = (await client.get(page)).text
    assert form.count('<option value="schema" selected>') == 2, "the topic has a schema for both"
    fields = {"csrf": await csrf_of(client, page), "key_as": "schema", "value_as": "schema"}
    refused = await client.post(page, data=fields | {"key": '{"id": "a"}', "value": '{"id": "x"}'})
    assert refused.status_code == 422 and "$.id is" in refused.text
    done = await client.post(page, data=fields | {"key": '{"id": "a"}', "value": '{"id": 7}'})
    assert done.status_code == 303, done.text
    out = await asyncio.to_thread(cli.rows, "consume", name, "--registry", registry.url)
    assert [(row["key"], row["value"]) for row in out] == [('{"id":"a"}', '{"id":7}')]
    assert "avro schema" in (await client.get(done.headers["location"])).text
