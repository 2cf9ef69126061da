from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.ottla.conftest import ROOT

#: Changes that a file makes to its process, and their names; one of them is a function that undoes it.
FILES = {
    "signal.signal(signal.SIGUSR2, print)": "SIGUSR2",
    "gc.disable(); gc.enable()": None,
    "gc.disable()": "whether garbage is collected",
    "logging.disable()": "the level below which nothing is logged",
}


def test_a_file_that_changes_its_process_for_those_that_follow_fails_and_says_what(tmp_path: Path) -> None:
    for number, statement in enumerate(FILES):
        text = f"import gc, logging, signal\ndef test_it() -> None: {statement}; COUNT = {number}\n"
        (tmp_path / f"test_{number}.py").write_text(text)
    options = ["-p", "tests.left_behind", "-p", "no:cacheprovider", "--rootdir", tmp_path]
    command = [sys.executable, "-m", "pytest", *options, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    said = re.findall(
        r"^E +AssertionError: left behind in this process \(before, after\): \{'([^']+)'", done.stdout, re.M
    )
    # Each file is compared with the state before it, so the second file does not answer for the first.
    assert said == [name for name in FILES.values() if name], done.stdout
    assert f"{len(FILES)} passed, {len(said)} errors" in done.stdout
