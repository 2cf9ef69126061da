"""The tests of `ottla`'s commands at Apache Kafka: they pass at Apache Kafka as at a node of Ottla in `make test`.

They run at one node, those of `ottla move` at three.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.compat.librdkafka import Outcome
from tests.ottla.conftest import ROOT
from tests.ports import free_ports
from tools.apache_kafka import ApacheKafka

FOLDER = "tests/ottla/cli/commands"
#: The tests for three nodes. They run without other topics, because they look at the moves of all partitions.
OF_THREE = f"{FOLDER}/test_move.py"
#: Tests of features that Apache Kafka does not have.
PORTS = 110
JVM = "-Xmx512m -Xms64m -XX:+UseSerialGC"
SECONDS_MAX = 1_800


def outcomes(names: list[str], logs: Path) -> Iterator[Outcome]:
    """Run the tests of one node and of three, or those that are named: `one`, `three`."""
    for name, nodes, words in (
        ("one", 1, [FOLDER, f"--ignore={OF_THREE}", "-m", "not ours"]),
        ("three", 3, [OF_THREE]),
    ):
        if not names or name in names:
            yield _run(name, nodes, words, logs)


def _run(name: str, nodes: int, words: list[str], logs: Path) -> Outcome:
    begin = time.monotonic()
    with ApacheKafka(free_ports(PORTS)[0], nodes, jvm=JVM, quick=True) as kafka:
        environment = os.environ | {
            "OTTLA_TEST_BOOTSTRAP": kafka.bootstrap,
            "OTTLA_TEST_BOOTSTRAP_OF_THREE": kafka.bootstrap,
        }
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rf", *words],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
        )
    (logs / f"command-line-{name}.log").write_text(done.stdout + done.stderr)
    failed = re.findall(r"^FAILED (\S+)", done.stdout, re.M)
    why = f"exit code {done.returncode}: {', '.join(failed)}" if done.returncode else ""
    return Outcome(f"command-line-{name}", "FAIL" if why else "PASS", time.monotonic() - begin, why)
