"""The simulated threads: they stop before file system calls, a seed gives the same order, and locks hold."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from tests.sim.disk import SimDisk
from tests.sim.loop import run
from tests.sim.threads import SimLock, Threads
from tests.sim.world import SimWorkers

SEEDS = range(40)


class Host:
    """A disk, workers whose work is always interleaved, and the order of what was done."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tests.sim.world.INTERLEAVED", 1.0)
        self.disk = SimDisk(random.Random(seed), lambda: 0)
        self.disk.make_dirs("/data")
        self.disk.threads = Threads(random.Random(seed))
        self.workers = SimWorkers(random.Random(seed), lambda: 0.001, self.disk.threads)
        self.order: list[str] = []

    def work(self, name: str) -> None:
        for number in range(5):
            self.disk.create(f"/data/{name}-{number}")
            self.order.append(name)


class Counter:
    """A sum that is read before two calls and written after them."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.count = 0
        self._lock = SimLock()

    def add(self, name: str) -> None:
        before = self.count
        self.host.disk.create(f"/data/{name}")
        self.host.disk.remove(f"/data/{name}")
        self.count = before + 1

    def add_alone(self, name: str) -> None:
        with self._lock:
            self.add(name)


async def both(host: Host, work: Callable[[str], None]) -> None:
    worker = asyncio.ensure_future(host.workers.run(work, "worker"))
    for _ in range(5):
        await asyncio.sleep(0.0003)
        work("loop")
    await worker


def orders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found = []
    for seed in SEEDS:
        host = Host(seed, monkeypatch)
        run(both(host, host.work))
        found.append(" ".join(host.order))
    return found


def test_the_loop_and_a_worker_go_on_in_the_middle_of_each_other_and_a_seed_repeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = orders(monkeypatch)
    assert first == orders(monkeypatch)
    assert len(set(first)) > len(SEEDS) // 2
    assert any("loop worker loop loop" in order for order in first), "a worker's call within a turn of the loop"


@pytest.mark.parametrize("is_locked", [True, False])
def test_a_lock_keeps_the_others_out_and_what_has_none_is_found(
    monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    lost = 0
    for seed in SEEDS:
        counter = Counter(Host(seed, monkeypatch))
        run(both(counter.host, counter.add_alone if is_locked else counter.add))
        lost += counter.count != 6
    assert (lost == 0) is is_locked


def test_a_failure_of_the_work_reaches_its_caller_and_work_that_is_given_up_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up: list[int] = []

    async def main(host: Host) -> None:
        def fail(name: str) -> None:
            host.work(name)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await host.workers.run(fail, "worker")
        host.order.clear()
        worker = asyncio.ensure_future(host.workers.run(host.work, "worker"))
        await asyncio.sleep(0.0015)
        begun = len(host.order)
        worker.cancel()
        await asyncio.sleep(0)
        assert len(host.order) == 5, "a thread cannot be cancelled"
        if 0 < begun < 5:
            given_up.append(begun)

    for seed in SEEDS:
        run(main(Host(seed, monkeypatch)))
    assert given_up, "in the middle"


def test_two_threads_that_wait_for_each_other_are_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(host: Host, first: SimLock, second: SimLock) -> None:
        with first:
            host.work("x")
            with second:
                host.work("y")

    async def main(host: Host) -> None:
        one, two = SimLock(), SimLock()
        await asyncio.gather(host.workers.run(take, host, one, two), host.workers.run(take, host, two, one))

    found = 0
    for seed in SEEDS:
        try:
            run(main(Host(seed, monkeypatch)))
        except AssertionError as error:
            assert "wait for each other's locks" in str(error)
            found += 1
    assert found
