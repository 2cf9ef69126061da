"""Node processes whose wall clock is wrong, by what a file says: `sitecustomize.py` beside this file puts the offset in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOUR = 3600
DAY = 24 * HOUR
#: Names the file; `sitecustomize.py` reads it.
VARIABLE = "OTTLA_TEST_CLOCK"


class WrongClock:
    """The wall clock of the processes that are started in `given_to_processes`; their monotonic clock stays as it is."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(0)

    def set(self, seconds: int) -> None:
        """From now on the wall clock is this far ahead of the machine's (behind it, if negative)."""
        written = self._file.with_suffix(".new")
        written.write_text(str(seconds))
        written.replace(self._file)  # a process reads the old offset or the new one, never an empty file

    @contextmanager
    def given_to_processes(self) -> Iterator[None]:
        here = os.path.dirname(__file__)
        added = {
            VARIABLE: str(self._file),
            "PYTHONPATH": os.pathsep.join([here, *filter(None, [os.getenv("PYTHONPATH")])]),
        }
        before = {name: os.environ.get(name) for name in added}
        os.environ.update(added)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
