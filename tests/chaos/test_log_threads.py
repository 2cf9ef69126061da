"""A log whose threads the interpreter switches anywhere: two seeds here, fifty in `make chaos`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ottla.storage.files import OsFiles
from ottla.storage.producers import producer_snapshots
from tests.chaos.log_threads import ThreadedLog
from tests.effort import seeds

SEEDS = seeds(2, long=50)
WANTED = Counter({"restart": 8, "flush": 25, "segment retired": 25})
SWITCH_SECONDS = 0.0002
THREADS = 3


@pytest.fixture(autouse=True)
def _switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(producer_snapshots, "PRODUCERS_AT_ONCE", 2)  # with this limit flushes write the snapshots
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_appended_is_there_after_restarts_whatever_its_threads_do(tmp_path: Path, seed: int) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        log = ThreadedLog(str(tmp_path), seed, OsFiles(), pool.submit)
        log.run(WANTED)
    assert log.done >= WANTED
