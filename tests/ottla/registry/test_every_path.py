"""A property of all paths that name a subject: leader and follower respond in the same way, about the intended subject and no
other.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import urllib.parse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from ottla.registry.access import Access
from ottla.registry.election import Identity
from ottla.registry.registry import SchemaRegistry
from ottla.registry.rest import app, forwarding
from ottla.registry.rest.app import PATHS, Application
from ottla.registry.rest.paths import PathTarget
from tests.ottla.registry.memory import Client, leader

#: The parts of names of topics, records (of Avro, Protobuf, and titles of JSON Schema), contexts and escaping mistakes.
PARTS = ["orders", "A9", "-value", "-key", ".", "..", "_", "/", "//", "%", "%2F", "%25", "%41", "%zz", "?", "#", ";", "&", "=",
         "+", " ", ":", "\\", "[", "]", "{", "}", "'", '"', "<", ">", "|", "^", "`", "~", "!", "*", "(", ")", "@", "$", ",",
         "ä", "값", "😀", "e\u0301", "\u202e", "versions", "latest", "1", "subjects", "shop.Order", ".shop.Order"]  # fmt: skip
NAMES = 24
SCHEMA = {"schema": '"int"'}
#: The body for each path that has one, as its handler expects it. Requests for other paths have none.
BODIES = {
    ("POST", "/subjects/{subject}"): SCHEMA,
    ("POST", "/subjects/{subject}/versions"): SCHEMA,
    ("POST", "/compatibility/subjects/{subject}/versions"): SCHEMA,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): SCHEMA,
    ("PUT", "/config/{subject}"): {"compatibility": "NONE"},
    ("PUT", "/mode/{subject}"): {"mode": "READWRITE"},
}
#: Requests that remove what others need come after these.
ORDER = ["POST /subjects/{subject}/versions", "PUT", "GET", "POST", "DELETE /config", "DELETE /mode"]
LAST = ["DELETE /subjects/{subject}/versions/{version}", "DELETE /subjects/{subject}"]


def names(chance: random.Random) -> list[str]:
    made = [f"a{part}b" for part in PARTS] + [
        "".join(chance.choices(PARTS, k=chance.randint(1, 6))) for _ in range(NAMES)
    ]
    made += [f":.ctx:{name}" for name in made[-6:]]
    return [*dict.fromkeys(name for name in made if not name.startswith(":") or name.startswith(":.ctx:"))]


def rows() -> list[tuple[str, str]]:
    """All paths that name a subject, in an order in which each can succeed."""
    found = [(row.method, row.path) for row in PATHS if "{subject}" in row.path]

    def turn(row: tuple[str, str]) -> int:
        text = " ".join(row)
        if text in LAST:
            return len(ORDER) + LAST.index(text)
        return next(place for place, start in enumerate(ORDER) if text.startswith(start))

    assert BODIES.keys() <= set(found)
    return sorted(found, key=turn)


@asynccontextmanager
async def two() -> AsyncIterator[list[Client]]:
    """Clients of a leader that listens, and of an instance that forwards to it. Both have the same log."""
    async with leader() as (registry, application):
        listening = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(application, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        follower = SchemaRegistry(registry.log, registry.checker, "BACKWARD")
        await follower.set_leader(Identity("http", "127.0.0.1", listening.getsockname()[1]), False)
        try:
            yield [Client(application), Client(Application(follower, Access()))]
        finally:
            server.should_exit = True
            await serving


async def check(seed: int) -> None:
    """Send each request about each name to one of the instances, and compare what both know afterwards."""
    async with two() as clients:
        turns = itertools.cycle(clients)
        known: set[str] = set()
        for name in names(random.Random(seed)):
            bystander = name + "x"
            for each in (name, bystander):
                path = f"/subjects/{urllib.parse.quote(each, safe='')}/versions"
                assert (await next(turns).ask("POST", path, SCHEMA))[0] == 200
            known |= {name, bystander}
            for method, path in rows():
                target = path.replace("{subject}", urllib.parse.quote(name, safe="")).replace("{version}", "1")
                asked = clients if method == "GET" else [next(turns)]
                if method == "DELETE" and path == "/subjects/{subject}":
                    await next(turns).ask("POST", f"{target}/versions", SCHEMA)
                answers = [await each.ask(method, target, BODIES.get((method, path))) for each in asked]
                assert answers[0][0] == 200, (method, path, name, answers)
                assert all(answer == answers[0] for answer in answers), (method, path, name, answers)
                found = answers[0][1]
                assert not isinstance(found, dict) or found.get("subject", name) == name, (method, path, name, found)
            known.discard(name)
            for each in clients:
                assert set((await each.ask("GET", "/subjects?subjectPrefix=%3A%2A%3A"))[1]) == known, name


async def test_each_path_means_the_same_subject_at_leader_and_follower() -> None:
    await check(0)


def split_after_unescaping(raw_path: bytes, query: bytes) -> PathTarget:
    path = urllib.parse.unquote_to_bytes(raw_path).decode()
    return PathTarget([part for part in path.split("/") if part], query.decode("latin-1"))


def escaped_again(scope: Any) -> str:
    return urllib.parse.quote(urllib.parse.unquote(scope["raw_path"].decode()), safe="/%:")


#: Mistakes that were made, or nearly made: the place, and the wrong code in place of the right one.
MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "a path is split after it is unescaped": (app, "target_of", split_after_unescaping),
    "a forwarded path is unescaped and put together again": (forwarding, "target_of", escaped_again),
}


@pytest.mark.parametrize("name", MUTANTS)
async def test_a_mistake_in_paths_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, wrong = MUTANTS[name]
    monkeypatch.setattr(place, attribute, wrong)
    with pytest.raises((AssertionError, ExceptionGroup)), suppress(asyncio.CancelledError):
        await check(0)
