"""Golden transcripts of one partition on three brokers: what its replicas and the controller did. harness.py lists the commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import transcripts
from tests.broker.replication.harness import ReplicationHarness

TRANSCRIPTS = transcripts.beside(__file__)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, tmp_path: Path) -> None:
    harness = ReplicationHarness(tmp_path)
    transcripts.check(path, transcripts.Interpreter(harness.commands(), harness.drain))
    harness.close()


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
