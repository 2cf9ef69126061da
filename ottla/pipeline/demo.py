"""The target `make demo`: a cluster of its own, the generator and all stages for a minute, then the checks and the report.

All parts are other programs, which this one starts by their command lines, as a user would. Each has its own process group:
Ctrl-C reaches this program only, which ends the others in order, and kills the rest of each group.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ottla.pipeline import broker_table
from ottla.pipeline.config import CONNECTORS, KAFKA, TABLE, Config, Source

STOP_SECONDS_MAX = 60
POLL_SECONDS = 0.2
#: The first micro-batch of each query is slow, and the stages have to catch up at the end: on a busy machine that takes minutes.
START_SECONDS_MAX = 900
CATCH_UP_SECONDS_MAX = 900
SETTINGS = (
    "kafka.options.max.poll.records=5000",
    "pipeline.trigger=5 seconds",
    # Spark runs for two minutes and shares two cores with three nodes: in that time optimizing compilers take more time than
    # they save.
    "spark.options.spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1",
    "spark.options.spark.sql.codegen.wholeStage=false",
)
QUERIES = ("silver", "dead-letters", "windows", "sessions")  # bronze comes before them, or is the brokers' table
MIX = ("--bad", "3", "--duplicates", "3", "--late", "5")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--base-port", type=int, default=0)
    parser.add_argument("--source", choices=CONNECTORS, default=KAFKA, help="source.connector")
    parser.add_argument("--output", default=f"build/demo/{time.strftime('%Y%m%d-%H%M%S')}")
    args = parser.parse_args()
    from ottla.pipeline import session

    problem = session.missing()
    if problem:
        print(f"make demo: {problem}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background processes with SIGINT ignored
    for number in (signal.SIGTERM, signal.SIGHUP):  # a closed terminal, too, ends the others in order
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    Path(args.output).mkdir(parents=True, exist_ok=True)
    nodes = ("-m", "ottla", "dev", "--nodes", str(args.nodes), "--base-port", str(args.base_port), "--json", "--dir")
    try:
        with (
            scratch_folder() as folder,
            running((*nodes, folder), stop=signal.SIGINT, stdout=subprocess.PIPE) as cluster,
        ):
            return play(cluster, args, folder)
    except KeyboardInterrupt:
        print("make demo: ended by Ctrl-C; what there is so far is in", args.output, file=sys.stderr)
        return 130


@contextmanager
def scratch_folder() -> Iterator[str]:
    """A folder that exists during the block. Nodes whose parent was killed end a moment after it, and write until then."""
    folder = tempfile.mkdtemp(prefix="ottla-demo-")
    try:
        yield folder
    finally:
        deadline = time.monotonic() + STOP_SECONDS_MAX
        while os.path.exists(folder) and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(POLL_SECONDS)


@contextmanager
def running(
    arguments: tuple[str, ...], *, stop: signal.Signals = signal.SIGTERM, **options: Any
) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, *arguments], text=True, start_new_session=True, **options)
    try:
        yield process
    finally:
        try:
            if process.poll() is None:
                process.send_signal(stop)
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS_MAX)
        finally:  # also if the wait is interrupted, or a program (Spark's Java) ignores the signal
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def bootstrap_of(cluster: subprocess.Popen[str]) -> str:
    assert cluster.stdout is not None
    line = cluster.stdout.readline()
    if not line:
        raise SystemExit(f"make demo: the cluster ended with {cluster.wait()}")
    found = json.loads(line)
    print(f"cluster: {len(found['nodes'])} nodes at {found['bootstrap']}", flush=True)
    return str(found["bootstrap"])


def play(cluster: subprocess.Popen[str], args: argparse.Namespace, folder: str) -> int:
    """Run the demonstration on a cluster whose files are in this folder."""
    bootstrap = bootstrap_of(cluster)
    create_events(bootstrap)
    common = ["--bootstrap", bootstrap, "--output", args.output]
    settings = (*SETTINGS, f"source.connector={args.source}", f"source.tables={folder}/tables")
    common += [part for setting in settings for part in ("--set", setting)]
    with running(("-m", "ottla.pipeline", "run", "all", *common)) as stages:
        needed = {"the cluster": cluster, "`ottla-pipeline run all`": stages}
        # Send a few events first, because Spark starts slowly: so all queries run before the minute begins.
        call(needed, "generate", "--rate", "20", "--seconds", "2", "--seed", "2", *common)
        if not caught_up(needed, common, args.output, START_SECONDS_MAX):
            raise SystemExit(f"make demo: the stages did not come to work within {START_SECONDS_MAX} s")
        print(f"generator: {args.rate} events a second for {args.seconds} s", flush=True)
        call(needed, "generate", "--rate", str(args.rate), "--seconds", str(args.seconds), *MIX, *common)
        caught_up(needed, common, args.output, CATCH_UP_SECONDS_MAX)
    print("checks:", flush=True)
    wrong = call({}, "verify", *common)
    print("report:", flush=True)
    return call({}, "report", *common) or wrong


def create_events(bootstrap: str) -> None:
    """Create the topic of events as a table, too, if the packages for that are installed.

    The report then compares both ways into bronze.
    """
    if importlib.util.find_spec("obstore") is None:
        return
    config = Config(source=Source(connector=TABLE))
    configs = [part for name, value in broker_table.configs(config).items() for part in ("--set", f"{name}={value}")]
    partitions = ("--partitions", str(config.kafka.partitions))
    with running(
        ("-m", "ottla", "topic", "create", config.kafka.events, *partitions, *configs, "-b", bootstrap)
    ) as made:
        made.wait()


def call(needed: dict[str, subprocess.Popen[str]], *arguments: str, **options: Any) -> int:
    """Run `ottla-pipeline` to its end, or until a program that it needs has ended."""
    with running(("-m", "ottla.pipeline", *arguments), **options) as process:
        while True:
            try:
                check_alive(needed)
            except SystemExit:
                process.kill()  # otherwise it may wait for minutes
                raise
            with suppress(subprocess.TimeoutExpired):
                return process.wait(POLL_SECONDS)


def check_alive(needed: dict[str, subprocess.Popen[str]]) -> None:
    for name, each in needed.items():
        if each.poll() is not None:
            raise SystemExit(f"make demo: {name} ended with {each.returncode}")


def caught_up(needed: dict[str, subprocess.Popen[str]], common: list[str], output: str, seconds_max: float) -> bool:
    """Wait until every check holds.

    The checks take processor time that Spark needs, so they are not tried before Spark has begun.
    """
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        check_alive(needed)
        if have_begun(output):
            if call(needed, "verify", *common, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0:
                return True
            time.sleep(2)
        time.sleep(POLL_SECONDS)
    return False


def have_begun(output: str) -> bool:
    """Return whether each query has completed a micro-batch."""
    progress = Path(output, "progress.jsonl")
    done = progress.read_text() if progress.is_file() else ""
    return all(f'"query": "{query}"' in done for query in QUERIES)


if __name__ == "__main__":
    sys.exit(main())
