"""IBM/sarama and franz-go, each with its own setting of the version, at nodes that emulate releases; they are built once, where
Go is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ottla.protocol.releases import release_name
from ottla.testing import KAFKA_VERSIONS, Cluster
from tests.compat.librdkafka import Outcome
from tools.apache_kafka.jars import CACHE

SOURCE = Path(__file__).parent / "emulated"
PLACE = CACHE / "emulated"
CLIENTS = ("sarama", "franz")
BUILD_SECONDS_MAX = 400
RUN_SECONDS_MAX = 120
#: Settings of the version that work at any release, and those that work at releases with the versions that Kafka 4.0 removed.
#: sarama's default is 2.1.
ANYWHERE, BEFORE_4 = ("2.1", "4.4"), ("1.1", "0.10.2")


def missing() -> str | None:
    """Build the clients if necessary; return the reason if they cannot be built."""
    if shutil.which("go") is None:
        return "Go is not installed"
    newest = max(file.stat().st_mtime for file in SOURCE.rglob("*") if file.is_file())
    if all((PLACE / name).exists() and (PLACE / name).stat().st_mtime > newest for name in CLIENTS):
        return None
    PLACE.mkdir(parents=True, exist_ok=True)
    command = ["go", "build", "-o", f"{PLACE}/", *(f"./{name}" for name in CLIENTS)]
    try:
        subprocess.run(command, cwd=SOURCE, check=True, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX)
    except subprocess.CalledProcessError as failure:
        return f"go build failed: {failure.stderr[-300:]}"
    except subprocess.TimeoutExpired:
        return "go build takes too long"
    return None


def settings(own: str) -> Iterator[tuple[str, str]]:
    """Yield each client with the settings of its version for a release such as 2.8."""
    for client in CLIENTS:
        for version in dict.fromkeys((own, *ANYWHERE, *(BEFORE_4 if own < "4" else ()))):
            if client == "sarama" or version != "0.10.2":  # franz-go's transactions and deletions need 0.11
                yield client, version


def outcomes(names: list[str], report: Callable[[Outcome], Outcome]) -> list[Outcome]:
    """Run both clients at the named releases, or at all."""
    return [outcome for name in names or KAFKA_VERSIONS for outcome in _at(release_name(name), report)]


def _at(release: str, report: Callable[[Outcome], Outcome]) -> Iterator[Outcome]:
    own = release.rpartition(".")[0]
    configured = {1: {"ottla.advertised.release": release, "group.initial.rebalance.delay.ms": "0"}}
    with Cluster(1, per_node=configured) as cluster:
        for client, version in settings(own):
            begin = time.monotonic()
            lines = run(client, cluster.bootstrap, version, own)
            result = "FAIL" if lines else "PASS"
            name = f"{client}-{version}-at-{release}"
            yield report(Outcome(name, result, time.monotonic() - begin, "; ".join(lines)))


def run(client: str, bootstrap: str, version: str, own: str) -> list[str]:
    """Return the lines of the steps that failed."""
    command = [PLACE / client, bootstrap, version, own]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired as late:
        return [f"no end within {RUN_SECONDS_MAX} s after {(late.stdout or b'')[-200:]!r}"]
    failed = [line for line in made.stdout.splitlines() if line.startswith("FAIL")]
    return failed or ([] if made.returncode == 0 else [made.stderr[-300:]])
