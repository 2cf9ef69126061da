"""For all tests: the files that take long come first, and processes that are started can be interrupted.

With `--dist loadfile` a worker that begins a long file last leaves the other one idle, and pytest-xdist begins with the files
of most tests, which are short ones.

A shell without job control starts background commands with SIGINT ignored, and what is ignored is inherited.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: Folders of which a file takes minutes, then those of which one takes seconds; all others follow.
LONG_FOLDERS = ("pipeline", "chaos", "cluster", "sim", "clients", "ottla", "docker", "deploy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {folder: place for place, folder in enumerate(LONG_FOLDERS)}
    root = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.relative_to(root).parts[0], len(places)))
