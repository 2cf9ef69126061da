"""The settings of all tests: long files come first, started processes can be interrupted, and no example of Hypothesis fails
because the machine was busy (its limit is 200 ms of wall time by default).

With `--dist loadfile` a worker that begins a long file last leaves the others idle; pytest-xdist begins with the files that
have most tests, and those are short. Files that keep the processor busy alternate with those that mostly wait for processes.
Files that share a fixture of the session run in one worker, because each worker would make its own (a Spark session is a JVM,
and the plain install an environment).
It is chance which files share a process, so none may leave its process changed (tests/left_behind.py).

A shell without job control starts background commands with SIGINT ignored, and what is ignored is inherited.
"""

from __future__ import annotations

import gc
import signal
from collections import defaultdict
from itertools import chain, zip_longest
from pathlib import Path

import pytest
from hypothesis import settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.effort import LEFT_OUT, LONG, examples

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ottla", deadline=None, max_examples=100 if LONG else examples(40))
settings.load_profile("ottla")

#: Folders with a file that takes minutes, then those with a file that takes seconds; all others follow.
BUSY_FOLDERS = ("pipeline", "fuzz", "sim")
WAITING_FOLDERS = ("chaos", "plain", "cluster", "docker", "clients", "ottla", "deploy")

#: The files with tests that read and write with one Spark session.
ONE_SPARK = {f"tests/pipeline/test_{name}.py" for name in ("connector", "source", "stages")}


class SharedFixtures(LoadFileScheduling):
    """Gives the files of one session to one worker, and any other file to the next free worker."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        if file.startswith("tests/plain/"):
            return "one plain install"
        return "one Spark session" if file in ONE_SPARK else file


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.import_plugin("tests.left_behind")
    for mark, reason in LEFT_OUT.items():
        config.addinivalue_line("markers", f"{mark}: {reason or 'run here'}")
    config.addinivalue_line("markers", "ours: about what Apache Kafka does not have")
    gc.disable()  # collected tests are no garbage: a search for some takes a quarter of the collection's time


def pytest_collection_finish() -> None:
    gc.freeze()  # 13,000 tests live until the end: each full collection would look at them again
    gc.enable()


@pytest.hookimpl(optionalhook=True)  # the tests of mutants run without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SharedFixtures | None:
    return SharedFixtures(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, reason in LEFT_OUT.items():
            if reason is not None and item.get_closest_marker(mark) is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
    root = Path(__file__).parent
    files: defaultdict[str, list[Path]] = defaultdict(list)
    for path in dict.fromkeys(item.path for item in items):
        files[path.relative_to(root).parts[0]].append(path)
    busy, waiting = ([path for name in names for path in files[name]] for names in (BUSY_FOLDERS, WAITING_FOLDERS))
    places = {path: place for place, path in enumerate(dict.fromkeys(chain.from_iterable(zip_longest(busy, waiting))))}
    items.sort(key=lambda item: places.get(item.path, len(places)))
