"""The lines that each program of the suite prints: a check that passed, or why it did not. Only the standard library is imported."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "localhost:9092"
#: A part of the names of topics and groups, so that a program can run again at one cluster.
RUN = uuid4().hex[:8]
failed: list[str] = []


@contextmanager
def check(name: str) -> Iterator[None]:
    """Print whether the block ended without an exception."""
    try:
        yield
    except Exception as error:
        traceback.print_exc()
        failed.append(name)
        print(f"FAIL {name}: {type(error).__name__}: {error}".replace("\n", " ")[:300], flush=True)
    else:
        print(f"PASS {name}", flush=True)


def equal(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"found {found!r}, wanted {wanted!r}")


def run(work: Callable[[], object]) -> None:
    """Run the checks, and end with 1 if one of them failed."""
    work()
    sys.exit(1 if failed else 0)
