"""With `-p tests.shuffled` the test files run in the order of the seed $SHUFFLE, so that other files than usual share a
process.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from pathlib import Path

import pytest


@pytest.hookimpl(trylast=True)  # after the order of tests/conftest.py
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    for item in items:
        files[item.path].append(item)
    order = sorted(files)
    random.Random(os.environ.get("SHUFFLE", "0")).shuffle(order)
    items[:] = [item for path in order for item in files[path]]
