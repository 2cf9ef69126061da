"""Turns at the checking processes, and registrations that are checked before the write lock is taken."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ottla.registry import turns
from ottla.registry.checking import CheckedSchema, Checker, Question
from ottla.registry.errors import RegistryError
from ottla.registry.turns import Turns
from tests.ottla.registry.memory import Client, leader

SLOW, QUICK = '"bytes"', '"int"'


class Gate:
    """A place in the code where each caller waits, in the order of arrival."""

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.order: list[str] = []
        self.open = asyncio.Event()

    async def enter(self, made: Turns, party: str) -> None:
        async with made.turn(party):
            self.inside.append(party)
            self.order.append(party)
            await self.open.wait()
            self.inside.remove(party)


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_one_party_has_one_place_and_the_others_need_not_wait_for_it() -> None:
    made, gate = Turns(2), Gate()
    tasks = [asyncio.create_task(gate.enter(made, "a")) for _ in range(8)]
    await settle()
    assert gate.inside == ["a"]
    tasks.append(asyncio.create_task(gate.enter(made, "b")))
    await settle()
    assert gate.inside == ["a", "b"]
    tasks.append(asyncio.create_task(gate.enter(made, "c")))
    await settle()
    gate.open.set()
    await asyncio.gather(*tasks)
    # The third party gets its turn after one turn of the first, and not after all of them.
    assert gate.order.index("c") <= 3


async def test_one_party_of_which_too_many_wait_is_rejected_and_the_others_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "WAITING_MAX", 2)
    made, gate = Turns(2), Gate()
    tasks = [asyncio.create_task(gate.enter(made, "a")) for _ in range(3)]
    await settle()
    with pytest.raises(RegistryError) as caught:
        await gate.enter(made, "a")
    assert caught.value.status == 429
    tasks.append(asyncio.create_task(gate.enter(made, "b")))
    await settle()
    assert gate.inside == ["a", "b"]
    gate.open.set()
    await asyncio.gather(*tasks)


async def test_who_has_a_place_and_who_waits_for_it_give_up_in_the_same_moment() -> None:
    """Requests of a client that has disconnected are cancelled in this way.

    One of them ended with InvalidStateError, and its place was lost.
    """
    made, gate = Turns(1), Gate()
    tasks = [asyncio.create_task(gate.enter(made, "a")) for _ in range(3)]
    await settle()
    for task in tasks:
        task.cancel()
    assert [type(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == [asyncio.CancelledError] * 3
    gate.open.set()
    async with asyncio.timeout(5):
        await gate.enter(made, "b")


async def test_who_gives_up_leaves_its_place_to_the_next() -> None:
    for given_at_once in (False, True):
        made, gate = Turns(1), Gate()
        first, second, third = (asyncio.create_task(gate.enter(made, name)) for name in "abc")
        await settle()
        if given_at_once:
            gate.open.set()
            await asyncio.sleep(0)
        second.cancel()
        gate.open.set()
        async with asyncio.timeout(10):
            await asyncio.gather(first, third)
            async with made.turn("d"):
                pass


class SlowChecker(Checker):
    """Checks of the text SLOW wait until they are released."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, Any]] = []
        self.go, self.came = asyncio.Event(), asyncio.Event()

    async def check(self, question: Question, party: Any = "", *, is_write: bool = False) -> CheckedSchema:
        self.asked.append((question.text, party))
        if question.text == SLOW:
            self.came.set()
            await self.go.wait()
        return await super().check(question, party, is_write=is_write)


async def test_a_slow_registration_holds_up_no_other() -> None:
    checker = SlowChecker()
    async with leader(checker=checker) as (_, application), asyncio.timeout(60):
        ask = Client(application).ask
        slow = asyncio.create_task(ask("POST", "/subjects/slow/versions", {"schema": SLOW}))
        await checker.came.wait()
        assert (await ask("POST", "/subjects/other/versions", {"schema": QUICK}))[0] == 200
        checker.go.set()
        assert (await slow)[0] == 200


async def test_a_registration_is_checked_again_when_the_subject_has_changed_meanwhile() -> None:
    checker = SlowChecker()
    async with leader(checker=checker) as (registry, application), asyncio.timeout(60):
        ask = Client(application).ask
        slow = asyncio.create_task(ask("POST", "/subjects/s/versions", {"schema": SLOW}))
        await checker.came.wait()
        # The slow one was the first of its subject when its check began, and would have needed no comparison.
        assert (await ask("POST", "/subjects/s/versions", {"schema": QUICK}))[0] == 200
        checker.go.set()
        assert (await slow)[0] == 40901
        assert [row.text for row in registry.state.versions("s")] == [QUICK]


async def test_a_registration_whose_subject_turns_read_only_meanwhile_is_rejected() -> None:
    checker = SlowChecker()
    async with leader(checker=checker) as (registry, application), asyncio.timeout(60):
        ask = Client(application).ask
        slow = asyncio.create_task(ask("POST", "/subjects/s/versions", {"schema": SLOW}))
        await checker.came.wait()
        await ask("PUT", "/mode/s", {"mode": "READONLY_OVERRIDE"})
        checker.go.set()
        assert (await slow)[0] == 42205
        assert registry.state.versions("s") == []


async def test_the_questions_of_an_address_do_not_stand_before_its_registrations() -> None:
    checker = SlowChecker()
    checker.go.set()
    async with leader(checker=checker) as (_, application):
        near, far = Client(application), Client(application, address="10.0.0.9")
        await near.ask("POST", "/subjects/s/versions", {"schema": QUICK})
        for client in (near, far):
            await client.ask("POST", "/compatibility/subjects/s/versions", {"schema": QUICK})
        assert {party for _, party in checker.asked} == {("127.0.0.1", True), ("127.0.0.1", False), ("10.0.0.9", False)}
