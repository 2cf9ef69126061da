"""docs/SPARK_START.md from its second step on, with other ports: a cluster with a registry, records with a schema, and a job of Spark."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.needs import needs_packages
from tests.rules.blocks import PageBlock, blocks_of
from tests.rules.sources import ROOT

needs_packages("pyspark", "pyarrow", "fastavro", "confluent_kafka")

PAGE = ROOT / "docs/SPARK_START.md"


def block(first: str) -> PageBlock:
    (found,) = (each for each in blocks_of(PAGE) if each.lines[0] == first)
    return found


@pytest.mark.compat
@pytest.mark.timeout(300)  # a start of Spark is part of it
def test_the_page_leads_to_typed_rows(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Its programs run in this process, whose session of Spark `getOrCreate` returns."""
    (started,) = block("ottla dev --nodes 1 --registry").lines
    words = [sys.executable, "-m", *started.split(), "--base-port", "0", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as cluster:
        assert cluster.stdout is not None
        try:
            ready = json.loads(cluster.stdout.readline())
            for line in block("python write_orders.py").lines:
                run(line, ready)
        finally:
            cluster.send_signal(signal.SIGINT)
    table = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("+", "|"))]
    assert table == block("+---+------+-----+---------+------+").lines


def run(line: str, ready: dict[str, str]) -> None:
    """Run the program of the page that a line names."""
    python, name = line.split()
    assert python == "python"
    text = "\n".join(block(f"# {name}").lines)
    for shown, own in (("127.0.0.1:9092", ready["bootstrap"]), ("http://127.0.0.1:8081", ready["registry"])):
        assert shown in text
        text = text.replace(shown, own)
    exec(compile(text, name, "exec"), {"__name__": "__main__"})
