"""Half a minute of fuzzing of what comes over the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import appends, batches, handshakes, logins, texts, wire
from tests.fuzz.short_run import find_nothing_new, needs_atheris


@needs_atheris
@pytest.mark.timeout(400)
def test_nothing_that_clients_and_peers_send_does_harm(tmp_path: Path) -> None:
    files = (wire, batches, appends, logins, handshakes, texts)
    find_nothing_new([target.name for file in files for target in file.TARGETS], tmp_path)
