from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.ottla.conftest import ROOT


@pytest.mark.parametrize(
    "statement, named",
    [
        ("signal.signal(signal.SIGINT, print)", "SIGINT"),
        ("gc.disable()", "whether garbage is collected"),
        ("logging.disable()", "the level below which nothing is logged"),
    ],
)
def test_a_file_that_changes_its_process_for_those_that_follow_fails_and_says_what(
    tmp_path: Path, statement: str, named: str
) -> None:
    test = f"import gc, logging, signal\ndef test_it() -> None: {statement}\n"
    done = run_test(tmp_path, test)
    assert done.returncode == 1 and "1 passed, 1 error" in done.stdout and named in done.stdout, done.stdout


def test_a_file_that_brings_back_what_it_changes_passes(tmp_path: Path) -> None:
    test = "import gc\ndef test_it() -> None:\n    gc.disable()\n    gc.enable()\n"
    done = run_test(tmp_path, test)
    assert done.returncode == 0, done.stdout


def run_test(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_one.py"
    file.write_text(text)
    options = ["-p", "tests.left_behind", "-p", "no:cacheprovider", "--rootdir", folder]
    command = [sys.executable, "-m", "pytest", *options, file]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
