"""For all tests: the files that take long come first, processes that are started can be interrupted, and no example of Hypothesis
fails because the machine was busy (its limit is 200 ms of wall time by default).

With `--dist loadfile` a worker that begins a long file last leaves the others idle, and pytest-xdist begins with the files
of most tests, which are short ones. Files that keep the processor busy alternate with those that mostly wait for processes.

A shell without job control starts background commands with SIGINT ignored, and what is ignored is inherited.
"""

from __future__ import annotations

import signal
from collections import defaultdict
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import settings

from tests.effort import examples

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ottla", deadline=None, max_examples=examples(100))
settings.load_profile("ottla")

#: Folders of which a file takes minutes, then those of which one takes seconds; all others follow.
BUSY_FOLDERS = ("pipeline", "fuzz", "sim")
WAITING_FOLDERS = ("chaos", "cluster", "docker", "clients", "ottla", "deploy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    root = Path(__file__).parent
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for path in dict.fromkeys(item.path for item in items):
        files[path.relative_to(root).parts[0]].append(path)
    busy, waiting = ([path for name in names for path in files[name]] for names in (BUSY_FOLDERS, WAITING_FOLDERS))
    places = {path: place for place, path in enumerate(chain.from_iterable(zip_longest(busy, waiting)))}
    items.sort(key=lambda item: places.get(item.path, len(places)))
