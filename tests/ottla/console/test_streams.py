"""Streams to browsers that do not read, or read slowly: they end, and their scan is free again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from ottla.console.pages import records
from ottla.console.pages.records import RecordStream


class Slot:
    """A scan that belongs to a stream until its generator ends."""

    def __init__(self) -> None:
        self.is_held = False

    async def pieces(self) -> AsyncGenerator[str, None]:
        self.is_held = True
        try:
            while True:
                yield "x"
                await asyncio.sleep(0)
        finally:
            self.is_held = False


async def served(slot: Slot, pause_s: float, pieces_max: int) -> int:
    """Send a stream to a browser that takes this long for each chunk, and reads nothing after some. Return how many it got."""
    got = 0

    async def send(message: Any) -> None:
        nonlocal got
        await asyncio.sleep(pause_s if got < pieces_max else 3_600)
        got += message["type"] == "http.response.body"

    async def receive() -> Any:
        await asyncio.Event().wait()

    async with asyncio.timeout(20):
        await RecordStream(slot.pieces(), "text/plain")(
            {"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send
        )
    return got


async def test_a_browser_that_stops_reading_loses_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "PIECE_S_MAX", 0.05)
    slot = Slot()
    assert await served(slot, 0.0, 7) == 7
    assert not slot.is_held


async def test_a_browser_that_reads_slowly_for_ever_loses_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "STREAM_S_MAX", 0.2)
    slot = Slot()
    assert await served(slot, 0.01, 10**9) > 1
    assert not slot.is_held
