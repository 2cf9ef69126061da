"""The steps of a small request, and one on the wire, on each build of this version of Python that is found: `python -m benchmarks.builds`.

Builds differ by how they were compiled (`ottla.node.python_build`): Debian's, python.org's, uv's and the image's with a profile, pyenv's
without one unless its options ask for one. Another build takes the packages of this environment, because they are made for the version. The
builds run in turns, each step is the median of its turns, and `make bench` has the table. Interpreters that are named behind the options
have columns too: those of other versions with packages of their own, so that they are the programs of environments.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import raw
from benchmarks.servers import start_ottla
from benchmarks.usage import cpu_seconds

ROOT = Path(__file__).parent.parent
STEP = re.compile(r"^ *([0-9.]+) us +(.+)$", re.MULTILINE)
NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
#: One-record Produces on the wire: connections, partitions, seconds.
WIRE = ((1, 1, 3.0), (64, 8, 3.0))
WARM_SECONDS, FIRST_SECONDS_MAX = 1.0, 30.0
ASK = "import platform; from ottla.node.python_build import python_build; print(python_build().value, platform.python_version())"


class Build(NamedTuple):
    """One interpreter."""

    kind: str
    version: str
    program: str


def candidates() -> list[str]:
    """Return the programs of this version, this one first: on the path, of the distribution, and pyenv's."""
    found = [sys.executable, shutil.which(NAME), f"/usr/bin/{NAME}"]
    found += map(str, sorted(Path.home().glob(f".pyenv/versions/*/bin/{NAME}")))
    return [program for program in found if program is not None and os.access(program, os.X_OK)]


def run(program: str, *arguments: str) -> str:
    """Return what the program prints. One of this version has the packages of this environment, another its own."""
    packages = [str(ROOT)]
    if Path(program).resolve().name == NAME:
        packages.append(sysconfig.get_path("purelib"))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(packages)}
    return subprocess.run(
        [program, *arguments], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout


def builds(programs: Iterable[str]) -> list[Build]:
    """Return one program of each kind of build and version; one that cannot import the packages is none."""
    found: dict[tuple[str, str], Build] = {}
    for program in programs:
        try:
            kind, _, version = run(program, "-c", ASK).strip().rpartition(" ")
        except subprocess.CalledProcessError:
            continue
        found.setdefault((kind, version.rpartition(".")[0]), Build(kind, version, program))
    return list(found.values())


def table(found: Sequence[Build], turns: int) -> list[str]:
    """Return the lines of the table; the ratios are those of each build to the first."""
    taken: list[dict[str, list[float]]] = [{} for _ in found]
    for _ in range(turns):
        for build, steps in zip(found, taken, strict=True):
            for module in (("benchmarks.steps",), ("benchmarks.builds", "--wire")):
                for microseconds, step in STEP.findall(run(build.program, "-m", *module)):
                    steps.setdefault(step, []).append(float(microseconds))
    head = [f"{build.version}, {build.kind}" for build in found]
    lines = [f"| us | {' | '.join(head)} |", f"| --- |{' --- |' * len(found)}"]
    for step in taken[0]:
        medians = [statistics.median(steps[step]) for steps in taken]
        ratios = [f"{median:.2f} ({median / medians[0]:.2f}x)" for median in medians[1:]]
        lines.append(f"| {step} | {' | '.join([f'{medians[0]:.2f}', *ratios])} |")
    return lines


def wire() -> None:
    """Print the CPU time that a node of this interpreter takes for a request on the wire, as another step."""
    partitions = max(partitions for _, partitions, _ in WIRE)
    server = start_ottla(tls=False, properties={"num.partitions": str(partitions)})
    try:
        host, _, port = server.bootstrap.rpartition(":")
        address = host, int(port)
        raw.first_ack([address], "wire", time.monotonic() + FIRST_SECONDS_MAX)
        for connections, count, seconds in WIRE:
            raw.one_in_flight([address] * count, "wire", connections, WARM_SECONDS)
            used = cpu_seconds(server.pids)
            found = raw.one_in_flight([address] * count, "wire", connections, seconds)
            used = cpu_seconds(server.pids) - used
            assert not found["errors"]
            print(
                f"{used / found['requests'] * 1e6:7.2f} us  On the wire, {connections} connections: the node's CPU time"
            )
    finally:
        server.stop()


def bench(turns: int) -> tuple[list[str], list[str]]:
    """Return the part of `make bench`: the lines of the whole table, and of the short one."""
    lines = ["## Builds of Python", "", *table(builds(candidates()), turns), ""]
    return lines, lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--wire", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("programs", nargs="*", help="further interpreters, also of other versions")
    args = parser.parse_args()
    if args.wire:
        wire()
        return
    found = builds([*candidates(), *args.programs])
    for build in found:
        print(f"{build.kind}: {build.version}, {build.program}")
    print("\n".join(table(found, args.turns)))


if __name__ == "__main__":
    main()
