"""The console's pages for a node of the session. The console itself has no socket."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import httpx
import pytest

from ottla.client.connection import read_client_properties
from ottla.console import access, site
from ottla.console.options import ConsoleOptions
from ottla.console.panels import Panels
from ottla.console.server import application
from ottla.local.secure_files import SCRAM_MODULE
from ottla.testing import Cluster
from tests.ottla.conftest import Cli
from tests.ottla.registry.instances import Instance, Registries

Open = Callable[..., Awaitable[httpx.AsyncClient]]
BASE = "http://127.0.0.1:9490"
#: In production a page waits shorter for a panel, but the node of a test may pause for seconds on a busy machine.
PATIENCE_S = 30.0


@pytest.fixture(scope="session")
def registry(cli: Cli) -> Iterator[Instance]:
    """A schema registry on the node, for the pages that need one."""
    made = Registries(cli.bootstrap)
    yield made.at_least(1)[0]
    made.stop()


@pytest.fixture
async def open_console(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Open]:
    """A function that starts a console with options, and returns a client of its pages once it has a sample."""
    monkeypatch.setattr(site, "LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(site, "Panels", partial(Panels, PATIENCE_S))
    monkeypatch.setattr(access, "PANEL_TIMEOUT_MS", int(PATIENCE_S * 1000))
    async with AsyncExitStack() as stack:

        async def start(
            *, base: str = BASE, wait: bool = True, names: Sequence[str] = ("",), **options: object
        ) -> httpx.AsyncClient:
            chosen = replace(ConsoleOptions(cli.bootstrap, interval_s=0.5), **options)
            app = await stack.enter_async_context(application(*(replace(chosen, name=name) for name in names)))
            transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1))
            client = await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url=base, timeout=60))
            if wait:
                await eventually(client, "/", "has not answered yet", there=False)
            return client

        yield start


@pytest.fixture(scope="session")
def secured() -> Iterator[Cluster]:
    """A cluster with an authorizer, logins and delegation tokens."""
    with Cluster(1, secure=True, delegation_token_secret_key="a key of the test") as cluster:
        yield cluster


@pytest.fixture
def open_secured(open_console: Open, secured: Cluster) -> Open:
    """A function like open_console for the secured cluster: a console that may change what the super user may, or the user of a login."""

    async def start(login: dict[str, str] | None = None, **options: object) -> httpx.AsyncClient:
        properties = read_client_properties(secured.client_file)
        if login is not None:
            user, password = login["sasl.username"], login["sasl.password"]
            properties["sasl.jaas.config"] = f'{SCRAM_MODULE} required username="{user}" password="{password}";'
        return await open_console(
            bootstrap=secured.bootstrap,
            properties=properties,
            config=secured.client_file,
            allow_changes=True,
            wait=login is None,
            **options,
        )

    return start


async def eventually(
    client: httpx.AsyncClient, page: str, text: str, *, there: bool = True, seconds: float = 30
) -> str:
    """Load a page until it contains a text, or no longer contains it."""
    async with asyncio.timeout(seconds):
        for _ in itertools.count():
            found = (await client.get(page)).text
            if (text in found) == there:
                break
            await asyncio.sleep(0.02)  # the pages await nothing, so without this the sampler would not run
    return found


async def csrf_of(client: httpx.AsyncClient, page: str) -> str:
    """Return the token of a page's form."""
    text = (await client.get(page)).text
    return text.partition('name="csrf" value="')[2].partition('"')[0]
