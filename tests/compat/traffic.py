"""A recording of kafka-python's own suite is replayed to an empty node and to Apache Kafka 4.3.1: the share of equal responses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.compat import kafka_python
from tests.compat.librdkafka import Outcome
from tests.compat.node import DEFAULTS, running_node
from tests.ports import free_base_port
from tools.apache_kafka import VERSION, ApacheKafka

#: The share of responses that must be equal. The rest depends on the moment: a member that joins a little later is of another
#: generation, and so are all requests of its group. Apache Kafka also names new partitions some moments after their creation.
EQUAL_MIN = {"ottla": 0.99, "apache-kafka": 0.97}
REPLAY_SECONDS_MAX = 1200


@contextmanager
def recording(file: Path, to: str) -> Iterator[str]:
    """Run `ottla record`; yield the address for clients."""
    words = [sys.executable, "-m", "ottla", "record", str(file), "--listen", "127.0.0.1:0", "--to", to]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        found = re.search(r"clients connect to (\S+)", process.stderr.readline())
        assert found, process.stderr.read()
        try:
            yield found[1]
        finally:
            process.send_signal(signal.SIGINT)
            print(f"  {process.stderr.read().strip()}", flush=True)


def outcomes(names: list[str], logs: Path, report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Record the tests of the suite with these names, or all, and replay them."""
    kafka_python.build()
    file = logs / "recording"
    with _node(logs, "recorded") as bootstrap, recording(file, bootstrap) as address:
        suite = Counter(each.result for each in kafka_python.run(address, logs, " or ".join(names)))
    print(f"  the suite through the proxy: {dict(suite)}, {file.stat().st_size / 1e6:.1f} MB", flush=True)
    targets: dict[str, Callable[[], AbstractContextManager[str]]] = {
        "ottla": lambda: _node(logs, "replayed"),
        "apache-kafka": _apache_kafka,
    }
    return [report(_replayed(file, name, target, logs)) for name, target in targets.items()]


def _replayed(file: Path, name: str, target: Callable[[], AbstractContextManager[str]], logs: Path) -> Outcome:
    begin = time.monotonic()
    with target() as bootstrap:
        words = [sys.executable, "-m", "ottla", "replay", str(file), "-b", bootstrap, "-o", "json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=REPLAY_SECONDS_MAX)
    (logs / f"replay-at-{name}.txt").write_text(done.stdout + done.stderr)
    print("".join(f"  {line}\n" for line in done.stderr.splitlines()), end="", flush=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    equal, different = (sum(row[kind] for row in rows) for kind in ("equal", "different"))
    share = equal / max(1, equal + different)
    why = f"{equal} of {equal + different} equal, {share:.2%}"
    result = "PASS" if equal and share >= EQUAL_MIN[name] else "FAIL"
    return Outcome(f"replay-at-{name}", result, time.monotonic() - begin, why)


def _node(logs: Path, name: str) -> AbstractContextManager[str]:
    return running_node(free_base_port(), logs / f"{name}.log", ottla_advertised_release=VERSION)


@contextmanager
def _apache_kafka() -> Iterator[str]:
    with ApacheKafka(free_base_port(), properties=DEFAULTS, first_id=0) as kafka:
        yield kafka.bootstrap
