"""Half a minute of fuzzing of what a node reads of its own disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import files, logs, state
from tests.fuzz.short_run import find_nothing_new, needs_atheris


@needs_atheris
@pytest.mark.timeout(400)
def test_nothing_that_may_be_on_the_disk_does_harm(tmp_path: Path) -> None:
    find_nothing_new([target.name for target in (*files.TARGETS, *logs.TARGETS, *state.TARGETS)], tmp_path)
