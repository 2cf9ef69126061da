"""Golden transcripts of one partition on three brokers: what its replicas and the controller said and did.

    <command and arguments, see lab.py>
    ----
    <what happened, one line each>

UPDATE=1 rewrites the files; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.broker.replication.lab import Lab
from tests.controller.raft.test_transcripts import parse

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path, tmp_path: Path) -> None:
    lab, rewritten, differences = Lab(tmp_path), [], []
    for block in parse(path.read_text()):
        output = lab.run(block.command)
        rewritten.append(block.text(output))
        if output != block.expected:
            differences.append((block.command, block.expected, output))
    lab.close()
    if os.environ.get("UPDATE"):
        path.write_text("\n".join(rewritten))
        return
    for command, expected, output in differences[:1]:
        assert output == expected, f"{command} (UPDATE=1 rewrites the transcripts)"


def test_there_are_transcripts() -> None:
    assert len(TRANSCRIPTS) >= 8
