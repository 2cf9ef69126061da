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


def _spawn(clock: ManualClock) -> Spawn:
    def spawn(coroutine: Coroutine[object, Never, Any], name: str) -> Any:
        def run() -> None:
            try:
                coroutine.send(None)
            except StopIteration:
                return
            raise AssertionError(f"{name} waits")

        clock.call_later(0, run)

    return spawn
