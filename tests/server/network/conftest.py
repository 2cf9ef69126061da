"""The event loops that a file's tests run on: those of its LOOPS, asyncio's own by default."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    names = getattr(item.getparent(pytest.Module).obj, "LOOPS", ("asyncio",))
    return {name: FACTORIES[name] for name in names}
