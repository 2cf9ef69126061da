"""Workers without threads, for harnesses that have no event loop: a task runs when the clock next passes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Never, TypeVar

from ottla.broker.groups.modern.offload import TargetWorker
from ottla.broker.groups.modern.resolution import RegexResolver
from ottla.server.service import Spawn
from tests.broker.coordinator.memory_log import ManualClock

T = TypeVar("T")


class InlineWorkers:
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


class Later:
    """A task that has not begun. A test may end before it does, so that it is closed with its harness."""

    def __init__(self, coroutine: Coroutine[object, Never, Any], name: str) -> None:
        self._coroutine = coroutine
        self._name = name

    def __call__(self) -> None:
        try:
            self._coroutine.send(None)
        except StopIteration:
            return
        raise AssertionError(f"{self._name} waits")

    def __del__(self) -> None:
        self._coroutine.close()


def _spawn(clock: ManualClock) -> Spawn:
    def spawn(coroutine: Coroutine[object, Never, Any], name: str) -> Any:
        clock.call_later(0, Later(coroutine, name))

    return spawn
