"""`make demo`: a cluster of its own, the generator and all stages for a minute, then the checks and the report.

The cluster is another program to this one: it is started by its command line, like a user would.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

NODES = 3
RATE = 500
STOP_SECONDS_MAX = 60
#: The stages have to catch up once the generator ends: as long as it takes them at most.
CATCH_UP_SECONDS_MAX = 240
SETTINGS = ("kafka.options.max.poll.records=5000", "pipeline.trigger=5 seconds")


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--base-port", type=int, default=0)
    parser.add_argument("--output", default=f"build/demo/{time.strftime('%Y%m%d-%H%M%S')}")
    args = parser.parse_args()
    from pipeline import session

    problem = session.missing()
    if problem:
        print(f"make demo: {problem}", file=sys.stderr)
        return 1
    Path(args.output).mkdir(parents=True, exist_ok=True)
    with start_cluster(args.nodes, args.base_port) as cluster:
        try:
            return play(bootstrap_of(cluster), args)
        finally:
            cluster.send_signal(signal.SIGINT)
            cluster.wait(STOP_SECONDS_MAX)


def start_cluster(nodes: int, base_port: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "ottla.main",
        "dev",
        "--nodes",
        str(nodes),
        "--base-port",
        str(base_port),
        "--json",
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def bootstrap_of(cluster: subprocess.Popen[str]) -> str:
    assert cluster.stdout is not None
    line = cluster.stdout.readline()
    if not line:
        raise SystemExit(f"make demo: the cluster ended with {cluster.wait()}")
    found = json.loads(line)
    print(f"cluster: {len(found['nodes'])} nodes at {found['bootstrap']}", flush=True)
    return str(found["bootstrap"])


def play(bootstrap: str, args: argparse.Namespace) -> int:
    common = ["--bootstrap", bootstrap, "--output", args.output]
    common += [part for setting in SETTINGS for part in ("--set", setting)]
    mix = ["--bad", "3", "--duplicates", "3", "--late", "5"]
    with pipeline("run", "all", *common) as stages:
        try:
            # A few events first, so that all queries run before the minute begins: Spark starts slowly.
            pipeline("generate", "--rate", "20", "--seconds", "2", "--seed", "2", *common).wait()
            caught_up(stages, common)
            pipeline("generate", "--rate", str(args.rate), "--seconds", str(args.seconds), *mix, *common).wait()
            code = caught_up(stages, common)
        finally:
            stages.send_signal(signal.SIGTERM)
            stages.wait(STOP_SECONDS_MAX)
    print("checks:", flush=True)
    code = pipeline("verify", *common).wait() or code
    print("report:", flush=True)
    return pipeline("report", *common).wait() or code


def pipeline(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "pipeline", *arguments])


def caught_up(stages: subprocess.Popen[bytes], common: list[str]) -> int:
    """Waits until every check holds: 0, or 1 if they do not in time."""
    begin = time.monotonic()
    while time.monotonic() - begin < CATCH_UP_SECONDS_MAX and stages.poll() is None:
        quiet = subprocess.run([sys.executable, "-m", "pipeline", "verify", *common], capture_output=True)
        if quiet.returncode == 0:
            return 0
        time.sleep(3)
    return 1


if __name__ == "__main__":
    sys.exit(main())
