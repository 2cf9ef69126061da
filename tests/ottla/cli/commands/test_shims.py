"""`ottla shims DIR` makes Kafka's tools with their own names, on a PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ottla.cli.commands.shims import main
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.__main__ import TOOLS


def test_each_tool_runs_by_both_of_its_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "bin"
    assert main([str(directory)]) == 0
    assert f"export PATH={directory}:$PATH" in capsys.readouterr().out
    assert {path.name for path in directory.iterdir()} == {
        f"{tool}{suffix}" for tool in TOOLS for suffix in ("", ".sh")
    }
    environment = {**os.environ, "PATH": f"{directory}:{os.environ['PATH']}"}
    for name in ("kafka-storage", "kafka-storage.sh"):
        done = subprocess.run([name, "random-uuid"], env=environment, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, len(done.stdout.strip())) == (0, 22), done.stderr


def test_a_second_run_writes_them_again_and_leaves_other_programs_alone(tmp_path: Path) -> None:
    main([str(tmp_path)])
    main([str(tmp_path)])
    (tmp_path / "kafka-topics").write_text("#!/bin/sh\n# the user's own\n")
    with pytest.raises(CommandFailed, match="kafka-topics: is there already"):
        main([str(tmp_path)])
    assert "the user's own" in (tmp_path / "kafka-topics").read_text()
