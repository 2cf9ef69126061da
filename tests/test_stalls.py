from __future__ import annotations

import subprocess
from collections.abc import Iterator

import psutil
import pytest

from tests.broker.conftest import eventually
from tests.stalls import still


@pytest.fixture
def family() -> Iterator[list[psutil.Process]]:
    """A shell, and two processes below it that sleep."""
    with subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"]) as shell:
        parent = psutil.Process(shell.pid)
        try:
            eventually(lambda: [each.name() for each in parent.children()] == ["sleep"] * 2, "two that sleep", 30)
            yield [parent, *parent.children()]
        finally:
            for each in [*parent.children(), parent]:
                each.kill()


def test_all_stand_still_and_go_on_but_the_one_that_was_stopped_before(family: list[psutil.Process]) -> None:
    parent, first, second = family
    first.suspend()
    eventually(lambda: stopped(family) == [first], "the first stands still", 30)
    with still(parent.pid) as held:
        assert held == [parent, second]
        eventually(lambda: stopped(family) == family, "all stand still", 30)
    eventually(lambda: stopped(family) == [first], "the others go on", 30)


def test_one_of_them_stands_still_alone(family: list[psutil.Process]) -> None:
    with still(family[0].pid, one=True) as held:
        assert len(held) == 1
        eventually(lambda: stopped(family) == held, "it stands still", 30)
    eventually(lambda: not stopped(family), "it goes on", 30)


def test_there_is_nothing_to_hold_when_pytest_has_ended() -> None:
    with subprocess.Popen(["true"]) as ended:
        pass
    with still(ended.pid) as held, still(ended.pid, one=True) as held_alone:
        assert (held, held_alone) == ([], [])


def stopped(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [each for each in processes if each.status() == psutil.STATUS_STOPPED]
