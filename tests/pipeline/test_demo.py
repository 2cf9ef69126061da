"""`make demo` that is ended early leaves no process behind. Its output when it may finish is tested as the whole pipeline."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.needs import needs_packages, skip_because

needs_packages("pyspark")

from tests.pipeline.conftest import ROOT, why_not

END_SECONDS_MAX = 240

#: The part that the test waits for, what happens then, and how the demo ends.
ENDINGS: dict[str, tuple[str, Callable[[subprocess.Popen[str], list[psutil.Process]], None], int]] = {
    "Ctrl-C": ("org.apache.spark.deploy.SparkSubmit", lambda demo, parts: demo.send_signal(signal.SIGINT), 130),
    "the cluster is killed": ("pipeline run all", lambda demo, parts: kill_cluster(parts), 1),
}


def named(parts: list[psutil.Process], word: str) -> psutil.Process | None:
    """Return the first of them with this on its command line."""
    for each in parts:
        with suppress(psutil.Error):  # it has just ended
            if word in " ".join(each.cmdline()):
                return each
    return None


def kill_cluster(parts: list[psutil.Process]) -> None:
    cluster = named(parts, "-m ottla dev")
    assert cluster is not None
    cluster.kill()


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_of_a_demo_that_ends_early(tmp_path: Path, ending: str) -> None:
    skip_because(why_not())
    command = [sys.executable, "-m", "ottla.pipeline.demo", "--nodes", "1", "--output", str(tmp_path / "demo")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as process:
        demo = psutil.Process(process.pid)
        try:
            deadline = time.monotonic() + END_SECONDS_MAX
            part, happens, code = ENDINGS[ending]
            while named(demo.children(recursive=True), part) is None:
                assert process.poll() is None and time.monotonic() < deadline, f"{part} was not started"
                time.sleep(0.05)
            parts = demo.children(recursive=True)
            happens(process, parts)
            output, _ = process.communicate(timeout=END_SECONDS_MAX)
        finally:
            process.kill()
    assert process.returncode == code, output
    assert "Traceback" not in output
    _, alive = psutil.wait_procs(parts, timeout=60)  # those in sessions of their own end a moment later
    assert not alive
