"""The seeds that noticed mutants, as `tests.sim.measure_mutants` has measured it: noticed.txt.

A test of a mutant begins with its seed. A change of the simulator changes what seeds do: if the seed does not notice the mutant
any more, the test tries all seeds from 0 on. That takes longer, and proves the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

FILE = Path(__file__).with_name("noticed.txt")
SEEDS_MAX = 200
NOT_NOTICED = -1

Row = tuple[str, str, int]


def rows() -> list[Row]:
    """Family, mutant, seed."""
    lines = (line.split("\t") for line in FILE.read_text().splitlines())
    return [(family, name, int(seed)) for family, name, seed in lines]


def write(measured: Iterable[Row]) -> None:
    """Write rows in place of those of the same mutants."""
    kept = {row[:2]: row[2] for row in rows()} if FILE.exists() else {}
    kept |= {row[:2]: row[2] for row in measured}
    FILE.write_text("".join(f"{family}\t{name}\t{seed}\n" for (family, name), seed in sorted(kept.items())))


def seeds_for(family: str, name: str, count: int = SEEDS_MAX) -> Iterator[int]:
    """The known one, and all others behind it."""
    known = {row[:2]: row[2] for row in rows()}.get((family, name), NOT_NOTICED)
    if known != NOT_NOTICED:
        yield known
    yield from (seed for seed in range(count) if seed != known)
