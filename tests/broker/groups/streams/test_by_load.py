"""Names by their loads: the least loaded one first, and equals as java.util.PriorityQueue has them."""

from __future__ import annotations

from random import Random

from ottla.broker.groups.streams.assignor import ByLoad


def taken_in_turn(names: str, times: int) -> str:
    """Take names in turn; each is put back with a load that is higher by one."""
    loads = dict.fromkeys(names, 0)
    by_load = ByLoad((0, name) for name in names)
    taken = ""
    for _ in range(times):
        taken += (name := by_load.pop())
        loads[name] += 1
        by_load.push(loads[name], name)
    return taken


def test_equals_are_taken_as_java_takes_them() -> None:
    """A PriorityQueue of Java 17 with a comparator of loads alone gives this order."""
    assert taken_in_turn("abc", 9) == "acbcbabac"
    assert taken_in_turn("abcde", 15) == "aebdcdceababcde"


def test_the_least_loaded_is_always_first() -> None:
    chance = Random(1)
    loads = {str(number): chance.randrange(5) for number in range(40)}
    by_load = ByLoad((load, name) for name, load in loads.items())
    taken = []
    while by_load:
        taken.append(loads[by_load.pop()])
    assert taken == sorted(loads.values())
