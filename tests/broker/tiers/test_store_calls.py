"""Calls of a store that hangs are given up, a bounded number of them, and the effect of a late one is undone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.tiers.objects import StoreCalls, TierFailure
from ottla.server.workers import ThreadWorkers
from tests.server.tiny_node import until

SOON_MS, PATIENCE_MS = 10, 30_000


class Hanging:
    """A store whose calls hang until the test ends that."""

    def __init__(self) -> None:
        self.is_back = threading.Event()
        self.put: list[int] = []
        self.undone: list[int] = []

    def call(self, number: int) -> int:
        self.is_back.wait(60)
        self.put.append(number)
        return number


@pytest.fixture
def store() -> Hanging:
    return Hanging()


@pytest.fixture
async def calls(store: Hanging) -> AsyncIterator[StoreCalls]:
    """Yield calls of a store, of which two run at a time."""
    workers = ThreadWorkers(asyncio.get_running_loop())
    yield StoreCalls(cast(Any, SimpleNamespace(workers=workers)), "store", 2)
    store.is_back.set()
    workers.close()


async def test_what_comes_back_after_it_was_given_up_is_undone(store: Hanging, calls: StoreCalls) -> None:
    with pytest.raises(TierFailure, match="no answer within 10 ms"):
        await calls.run(SOON_MS, store.call, 1, undo=lambda: store.undone.append(1))
    store.is_back.set()
    await until(lambda: store.undone == [1])
    assert await calls.run(PATIENCE_MS, store.call, 2, undo=lambda: store.undone.append(2)) == 2
    assert (store.put, store.undone) == ([1, 2], [1])


async def test_an_undoing_that_fails_is_tried_again_until_it_succeeds(store: Hanging, calls: StoreCalls) -> None:
    is_away, tried = True, 0

    def undo() -> None:
        nonlocal tried
        tried += 1
        if is_away:
            raise TierFailure("away")
        store.undone.append(1)

    with pytest.raises(TierFailure, match="no answer within 10 ms"):
        await calls.run(SOON_MS, store.call, 1, undo=undo)
    await calls.undo_left(PATIENCE_MS)
    assert not tried, "the call may be under way still"
    store.is_back.set()
    await until(lambda: tried == 1)
    await until(lambda: calls._late[0][0].is_back)
    await calls.undo_left(PATIENCE_MS)
    assert (tried, store.undone) == (2, [])
    is_away = False
    await calls.undo_left(PATIENCE_MS)
    await calls.undo_left(PATIENCE_MS)
    assert (tried, store.undone) == (3, [1])


async def test_a_store_that_hangs_for_long_holds_so_many_threads_and_no_more(store: Hanging, calls: StoreCalls) -> None:
    before = threading.active_count()
    for number in range(2):
        with pytest.raises(TierFailure, match="no answer"):
            await calls.run(SOON_MS, store.call, number)
    for number in range(20):
        with pytest.raises(TierFailure, match="2 earlier calls have not come back from the store"):
            await calls.run(SOON_MS, store.call, number)
    assert threading.active_count() == before + 2
    store.is_back.set()
    await until(lambda: sorted(store.put) == [0, 1])
    assert await calls.run(PATIENCE_MS, store.call, 7) == 7
    assert threading.active_count() == before + 2, "the threads that are back are used again"


async def test_an_undo_that_fails_is_the_failure_of_nothing_else(store: Hanging, calls: StoreCalls) -> None:
    with pytest.raises(TierFailure):
        await calls.run(SOON_MS, store.call, 1, undo=lambda: divmod(1, 0))
    store.is_back.set()
    await until(lambda: store.put == [1])
    await until(lambda: not calls._late or calls._late[0][0].is_back)
    assert await calls.run(PATIENCE_MS, store.call, 2) == 2
