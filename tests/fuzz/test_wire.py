"""Half a minute of fuzzing of what comes over the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import appends, batches, texts, wire
from tests.fuzz.short_run import find_nothing_new, needs_atheris


@needs_atheris
@pytest.mark.timeout(400)
def test_nothing_that_clients_and_peers_send_does_harm(tmp_path: Path) -> None:
    find_nothing_new(
        [target.name for target in (*wire.TARGETS, *batches.TARGETS, *appends.TARGETS, *texts.TARGETS)], tmp_path
    )
