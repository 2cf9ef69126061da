"""`python -m tests.stalls PYTEST-ARGUMENTS...` is pytest of which all processes stand still for seconds every now and then.

So does a machine that others use, or that waits for its disk: a test that passes alone fails by it once in a hundred runs.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil


def main() -> int:
    options, pytest_arguments = _parser().parse_known_args()
    with subprocess.Popen([sys.executable, "-m", "pytest", *pytest_arguments]) as pytest:
        stalls = 0
        while not _ended(pytest, random.uniform(0.5, 1.5) * options.every):
            with still(pytest.pid, options.one):
                time.sleep(options.seconds)
            stalls += 1
        print(f"{stalls} stalls of {options.seconds} s")
        return pytest.returncode


@contextlib.contextmanager
def still(root: int, one: bool = False) -> Iterator[list[psutil.Process]]:
    """Holds the process and all below it, or with `one` a random one of these. What a test has stopped stays so afterwards, too."""
    stopped: list[psutil.Process] = []
    try:
        if one:
            running = [each for each in _with_those_below(root) if _runs(each)]
            stopped += [each for each in random.sample(running, min(1, len(running))) if _sent(each, signal.SIGSTOP)]
        else:
            # What was forked before its parent stood still is found in the next round.
            while found := [each for each in _with_those_below(root) if each not in stopped and _runs(each)]:
                stopped += [each for each in found if _sent(each, signal.SIGSTOP)]
        yield stopped
    finally:
        random.shuffle(stopped)  # any of them may be the first to go on, as on a busy machine
        for each in stopped:
            _sent(each, signal.SIGCONT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.stalls", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=3, help="how long they stand still (default: 3)")
    parser.add_argument(
        "--every", type=float, default=10, help="seconds between two stalls, on an average (default: 10)"
    )
    parser.add_argument("--one", action="store_true", help="stop a random process alone, and not all of them together")
    return parser


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits that long, or until the process has ended; says whether it has."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def _with_those_below(root: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(root)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _sent(process: psutil.Process, number: int) -> bool:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
