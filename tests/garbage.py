"""With `-p tests.garbage` garbage is collected when a file of tests ends, so that an exception of a destructor fails a test of
that file.

Without it the exception fails any test that runs when the interpreter collects next.
"""

from __future__ import annotations

import gc
from collections.abc import Generator

import pytest
from _pytest.unraisableexception import collect_unraisable


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        collect_unraisable(item.config)
