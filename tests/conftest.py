"""For all tests: the files that take long come first, processes that are started can be interrupted, and no example of Hypothesis
fails because the machine was busy (its limit is 200 ms of wall time by default).

With `--dist loadfile` a worker that begins a long file last leaves the other one idle, and pytest-xdist begins with the files
of most tests, which are short ones.

A shell without job control starts background commands with SIGINT ignored, and what is ignored is inherited.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ottla", deadline=None)
settings.load_profile("ottla")

#: Folders of which a file takes minutes, then those of which one takes seconds; all others follow.
LONG_FOLDERS = ("pipeline", "chaos", "fuzz", "cluster", "sim", "clients", "ottla", "docker", "deploy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {folder: place for place, folder in enumerate(LONG_FOLDERS)}
    root = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.relative_to(root).parts[0], len(places)))
