"""Names of subjects in paths: each name that a serializer can make means the same subject at every instance."""

from __future__ import annotations

import asyncio
import urllib.parse

import httpx

from ottla.registry.access import Access
from ottla.registry.rest.app import Application
from tests.ottla.registry.memory import Client, leader
from tests.ottla.registry.test_forwarding import follower

NAMES = ["a?b", "a%41", "a#b", "a;b", "a+b", "a b", "ä-값", "a/b", "a\\b", "a%3Fb", "x%2Fversions%2F1", "x/versions/1",
         "a:b", ":.ctx:a/b", "a&b=c", "versions", "%", "a//b", "[b]"]  # fmt: skip


def quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


async def test_each_path_takes_each_name() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        for name in NAMES:
            path = f"/subjects/{quoted(name)}"
            body = {"schema": '"int"'}
            assert (await ask("POST", f"{path}/versions", body))[0] == 200
            assert (await ask("GET", f"{path}/versions/latest"))[1]["subject"] == name
            assert (await ask("GET", f"{path}/versions/1/schema"))[1] == "int"
            assert (await ask("POST", path, body))[1]["subject"] == name
            assert (await ask("POST", f"/compatibility{path}/versions/latest", body))[0] == 200
            for kind, value in (("config", {"compatibility": "NONE"}), ("mode", {"mode": "READWRITE"})):
                assert (await ask("PUT", f"/{kind}/{quoted(name)}", value))[0] == 200
                assert (await ask("GET", f"/{kind}/{quoted(name)}"))[0] == 200
        assert set(NAMES) <= set((await ask("GET", "/subjects"))[1])
        for name in NAMES:
            assert (await ask("DELETE", f"/subjects/{quoted(name)}"))[1] == [1]


async def test_a_write_reaches_the_leader_as_it_came() -> None:
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readuntil(b"\r\n\r\n")).split(b" ")[1])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    async with follower(answer) as (_, _, client):
        for target in [f"/subjects/{quoted(name)}/versions?normalize=true" for name in NAMES] + [
            "/contexts/.c/subjects/a%2Fb/versions",
            "/subjects/a%41/versions/?x=%26&y=a+b",
        ]:
            await client.post(httpx.URL("http://registry").copy_with(raw_path=target.encode()), json={})
            assert asked[-1].decode() == target


async def test_a_slash_too_many_counts_for_nothing() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        assert (await ask("POST", "/subjects/s/versions/", {"schema": '"int"'}))[0] == 200
        for path in ("/subjects/", "//subjects", "/config/", "/schemas/types/", "/subjects/s/versions/"):
            assert (await ask("GET", path))[0] == 200
        assert (await ask("GET", "//subjects//s/versions/latest"))[0] == 200


async def test_heads_options_and_paths_that_are_none() -> None:
    async with leader() as (_, application):
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
            assert (await client.head("/subjects")).status_code == 200
            options = await client.options("/subjects/s/versions/1")
            assert (options.status_code, options.headers["allow"]) == (200, "DELETE, GET, OPTIONS")
            assert (await client.put("/subjects")).status_code == 405
            assert (await client.get("/subjects/%FF/versions")).status_code == 404
            assert (await client.get("/nothing")).json()["error_code"] == 404


async def test_an_alias_stands_for_its_subject_and_the_global_mode_can_be_deleted() -> None:
    async with leader() as (_, application):
        ask = Client(application).ask
        await ask("POST", "/subjects/new/versions", {"schema": '"int"'})
        assert (await ask("PUT", "/config/old", {"alias": "new"}))[0] == 200
        assert (await ask("GET", "/subjects/old/versions/latest"))[1]["subject"] == "new"
        assert (await ask("POST", "/subjects/old", {"schema": '"int"'}))[1]["subject"] == "new"
        await ask("POST", "/subjects/old/versions", {"schema": '"long"'})
        assert (await ask("GET", "/subjects"))[1] == ["new"]
        assert (await ask("GET", "/config/old"))[1] == {"alias": "new"}
        assert (await ask("PUT", "/config/old", {"alias": 3}))[0] == 400
        assert (await ask("DELETE", "/mode"))[1] == {"mode": "READWRITE"}
        assert (await ask("PUT", "/mode", {"mode": "READONLY_OVERRIDE"}))[0] == 200
        assert (await ask("POST", "/subjects/x/versions", {"schema": '"int"'}))[0] == 42205
        assert (await ask("DELETE", "/mode"))[1] == {"mode": "READONLY_OVERRIDE"}
        assert (await ask("DELETE", "/subjects/new/versions/1"))[0] == 200
        assert (await ask("GET", "/subjects/new/versions?deletedAsNegative=true"))[1] == [-1, 2]
        verbose = "/compatibility/subjects/new/versions/latest?verbose=true"
        code, answer = await ask("POST", verbose, {"schema": "{nonsense"})
        assert (code, answer["is_compatible"], len(answer["messages"])) == (200, False, 1)


async def test_half_of_a_surrogate_pair_is_refused_where_it_would_be_kept() -> None:
    async with leader(Access()) as (_, application):
        assert isinstance(application, Application)
        ask = Client(application).ask
        assert (await ask("PUT", "/config/a", b'{"alias": "\\ud800"}'))[0] == 400
        assert (await ask("POST", "/subjects/a/versions", b'{"schema": "\\"\\ud800\\""}'))[0] == 400
        assert (await ask("PUT", "/config/a", b'{"alias": "\\ud83d\\ude00"}'))[0] == 200
        assert (await ask("GET", "/config/a"))[1] == {"alias": "😀"}
