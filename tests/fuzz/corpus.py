"""The inputs that are kept in the tree, a file of text per target: one input per line in hex, and the reason why it is there.

    what a mistake was found by                  stays for good, with a comment after #
    what reaches code that the seeds do not      added by `python -m tests.fuzz --keep` after a long run

All of it is bounded (a test checks it): a corpus is to be read and cloned.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent / "corpus"
BYTES_MAX = 1_000_000
#: The limit of the text of one target's file.
TARGET_BYTES_MAX = 25_000


class Kept(NamedTuple):
    data: bytes
    why: str  # empty if the input is only kept for its coverage


def path_of(target: str) -> Path:
    return HERE / f"{target}.txt"


def read(target: str) -> list[Kept]:
    path = path_of(target)
    return [_kept(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def _kept(line: str) -> Kept:
    text, _, why = line.partition("#")
    return Kept(bytes.fromhex(text.strip()), why.strip())


def write(target: str, found: Iterable[bytes]) -> None:
    """Write all inputs that have a reason, and of the others the smallest ones, as many as fit."""
    kept = read(target)
    lines = [f"{each.data.hex()}  # {each.why}" for each in kept if each.why]
    reasons = {each.data for each in kept if each.why}
    others = {each.data for each in kept} | set(found)
    size = sum(len(line) + 1 for line in lines)
    for data in sorted(others - reasons, key=lambda data: (len(data), data)):
        line = data.hex()
        size += len(line) + 1
        if line and size < TARGET_BYTES_MAX:
            lines.append(line)
    if not lines:
        return
    HERE.mkdir(exist_ok=True)
    path_of(target).write_text("".join(f"{line}\n" for line in lines))
