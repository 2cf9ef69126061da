"""`pytest -p tests.unit_only` runs the tests that need neither a socket nor a process: `make unit`.

No list of tests says which these are. A test, or a fixture, that binds or connects a socket or starts a process is skipped at
that call, so that the remaining tests always keep the promise. `make test` runs them all.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

#: It is for tests/effort.py, also in the workers of pytest-xdist: they import this plugin after the tests' conftest.py.
os.environ["OTTLA_UNIT"] = "1"

#: Audit events of Python (PEP 578). A socket pair, as each event loop has, is no connection to anything.
REFUSED = frozenset({"socket.bind", "socket.connect", "socket.sendto", "subprocess.Popen", "os.posix_spawn", "os.fork"})
#: True while a test or one of its fixtures runs, because the collection of tests may look for programs.
_refusing = False


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if _refusing and event in REFUSED:
        pytest.skip(f"{event} is not for unit tests")


sys.addaudithook(_refuse)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    global _refusing
    _refusing = True
    try:
        return (yield)
    finally:
        _refusing = False
