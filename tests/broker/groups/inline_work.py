"""Workers without threads, for harnesses that have no event loop: a task runs when the clock next passes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Never, TypeVar

from ottla.broker.groups.modern.offload import RegexResolver, TargetWorker
from ottla.server.tasks import Spawn
from tests.manual_clock import ManualClock
from tests.workers import OneQueue

T = TypeVar("T")


class InlineWorkers(OneQueue):
    async def run(self, function: Callable[..., T], *args: object) -> T:
        return function(*args)

    def process(self) -> Never:
        raise NotImplementedError

    def apart(self, name: str) -> Never:
        raise NotImplementedError


def resolver(clock: ManualClock) -> RegexResolver:
    return RegexResolver(InlineWorkers(), _spawn(clock))


def target_worker(clock: ManualClock) -> TargetWorker:
    return TargetWorker(InlineWorkers(), _spawn(clock))


#: Tasks that have not begun, because a test may end before they do. If they became garbage they would fail a later test with a
#: warning.
_not_begun: list[Coroutine[object, Never, Any]] = []


def close_what_has_not_begun() -> None:
    """Close the work that has not begun; conftest.py calls this after each test."""
    while _not_begun:
        _not_begun.pop().close()


def _spawn(clock: ManualClock) -> Spawn:
    def spawn(coroutine: Coroutine[object, Never, Any], name: str) -> Any:
        def run() -> None:
            _not_begun.remove(coroutine)
            try:
                coroutine.send(None)
            except StopIteration:
                return
            raise AssertionError(f"{name} waits")

        _not_begun.append(coroutine)
        clock.call_later(0, run)

    return spawn
