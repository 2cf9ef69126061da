"""Golden transcripts: each file in transcripts/ is a situation played against a coordinator; UPDATE=1 rewrites them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker.transactions.lab import play

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    written = path.read_text()
    played = play(written)
    if os.environ.get("UPDATE") == "1":
        path.write_text(played)
        return
    assert played == written


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 15
