"""The short form of `python -m tests.pipeline.chaos`: a kill -9 of parts of Spark and of a broker in the middle of a stream.

One accident on a standalone cluster: an executor and a broker. `make chaos` has the others, and the driver and its executors in one JVM.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest

from tests.needs import needs_packages, skip_because

needs_packages("pyspark")

from tests.pipeline import chaos
from tests.pipeline.conftest import why_not


@pytest.mark.timeout(1800)
def test_nothing_is_lost_or_doubled_when_spark_and_a_broker_are_killed_mid_stream(tmp_path: Path) -> None:
    skip_because(why_not())
    checks = chaos.run("standalone", kills=1, rate=300, seed=1, folder=tmp_path)
    assert not [check for check in checks if not check.holds]
    by_name = {check.what: check.found for check in checks}
    assert by_name["bronze rows = acknowledged events"] > 1000 and by_name["gold sessions = truth"] > 100
    deadline = time.monotonic() + 20  # a killed Java gives back its memory first
    while left_behind(tmp_path):
        assert time.monotonic() < deadline, left_behind(tmp_path)
        time.sleep(0.1)


def left_behind(folder: Path) -> list[str]:
    """Processes whose command line names the folder, as Spark's Java does."""
    running = [each.info for each in psutil.process_iter(["cmdline", "status"])]
    lines = [" ".join(each["cmdline"] or ()) for each in running if each["status"] != psutil.STATUS_ZOMBIE]
    return [line[:120] for line in lines if str(folder) in line]
