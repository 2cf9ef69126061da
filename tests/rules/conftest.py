"""The rules parse a thousand files and keep the trees, in which the garbage collector finds nothing to collect."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.freeze()  # not at the end, either
    gc.enable()
