"""The panels that are cached, and those that only the present readers share."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from ottla.console.panels import Panels, Shown, footprint
from ottla.console.window import Event

Load = Callable[[], Awaitable[Any]]
Lent = AbstractAsyncContextManager[Shown[Any]]


def lend(panels: Panels, load: Load, key: str = "key", size: int = 10, limit_s: float = 10) -> Lent:
    return panels.lend(key, load, limit_s, size)


async def test_a_panel_that_is_lent_is_shared_by_those_who_have_it_and_then_gone() -> None:
    panels, loads, go = Panels(10), 0, asyncio.Event()

    async def load() -> bytes:
        nonlocal loads
        loads += 1
        await go.wait()
        return b"screen"

    async def look() -> bytes | None:
        async with lend(panels, load) as shown:
            return shown.value

    both = [asyncio.create_task(look()) for _ in range(2)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    go.set()
    assert [await each for each in both] == [b"screen", b"screen"]
    assert loads == 1 and not panels._panels
    await look()
    assert loads == 2
    await panels.show("other", load)
    await panels.show("other", load)
    assert loads == 3


async def test_a_screen_whose_looker_has_gone_is_not_kept_either() -> None:
    panels, go = Panels(10), asyncio.Event()

    async def load() -> bytes:
        await go.wait()
        return b"screen"

    async with lend(panels, load, limit_s=0.01) as shown:
        assert shown.value is None
    (panel,) = panels._panels.values()
    assert panel.task is not None and panels.bytes == 10
    go.set()
    await panel.task
    assert not panels._panels


async def test_all_panels_together_have_a_bound_of_bytes_and_screens_take_the_room_of_those_that_are_kept() -> None:
    panels = Panels(10, bytes_max=100_000)

    async def load() -> list[str]:
        return ["x" * 500 for _ in range(20)]

    for number in range(50):
        assert (await panels.show(f"panel {number}", load)).value is not None
        assert panels.bytes <= 100_000
    assert 5 <= len(panels._panels) <= 9 and "panel 49" in panels._panels
    async with AsyncExitStack() as stack:
        for number in range(2):
            shown = await stack.enter_async_context(lend(panels, load, f"screen {number}", 40_000))
            assert shown.value is not None and panels.bytes <= 100_000
        async with lend(panels, load, "screen 2", 40_000) as refused:
            assert (refused.value, refused.problem) == (None, "too many screens of records are looked at")
        async with lend(panels, load, "screen 1", 40_000) as shared:
            assert shared.value is not None
    assert panels.bytes <= 20_000
    async with lend(panels, load, "screen 2", 40_000) as shown:
        assert shown.value is not None


async def test_a_panel_that_is_larger_than_the_bound_is_shown_and_not_kept() -> None:
    panels = Panels(10, bytes_max=10_000)

    async def load() -> bytes:
        return bytes(20_000)

    assert (await panels.show("key", load)).value == bytes(20_000)
    assert panels.bytes == 0


def test_the_size_of_a_value_is_estimated_from_a_part_of_it() -> None:
    rows = [{"name": f"{n:09}", "text": f"{n:1000}", "parts": (b"%500d" % n, None)} for n in range(5_000)]
    whole = len(pickle.dumps(rows))
    assert 0.9 * whole < footprint(rows) < 2 * whole
    assert footprint({"a": "x" * 10_000, "b": [("k", "x" * 10_000)]}) > 20_000
    assert footprint(Event(1, "kind", "place", "x" * 9_000)) > 9_000
    assert footprint(Shown("x" * 9_000)) > 9_000
