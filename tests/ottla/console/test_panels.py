"""What is kept of panels, and what only those have who wait for it."""

from __future__ import annotations

import asyncio

from ottla.console.panels import Panels


async def test_a_panel_that_is_not_kept_is_shared_by_those_who_wait_and_then_gone() -> None:
    panels, loads, go = Panels(10), 0, asyncio.Event()

    async def load() -> bytes:
        nonlocal loads
        loads += 1
        await go.wait()
        return b"screen"

    both = [asyncio.create_task(panels.show("key", load, kept=False)) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    assert [(await each).value for each in both] == [b"screen", b"screen"]
    assert loads == 1 and not panels._panels
    await panels.show("key", load, kept=False)
    assert loads == 2
    await panels.show("other", load)
    await panels.show("other", load)
    assert loads == 3


async def test_a_screen_whose_looker_has_gone_is_not_kept_either() -> None:
    panels, go = Panels(10), asyncio.Event()

    async def load() -> bytes:
        await go.wait()
        return b"screen"

    assert (await panels.show("key", load, 0.01, kept=False)).value is None
    (panel,) = panels._panels.values()
    assert panel.task is not None
    go.set()
    await panel.task
    assert not panels._panels
