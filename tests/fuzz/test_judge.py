"""The judge finds all kinds of errors, and goes on afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from ottla.protocol.compile import encode
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.primitives import read_varlong
from tests.fuzz.judge import CLEAR_REFS, ROOT, TOO_LONG, TOO_MUCH, Finding, Judge
from tests.fuzz.target import Target

MANY = 100 * 1024 * 1024

on_linux = pytest.mark.skipif(not os.path.exists(CLEAR_REFS), reason="only Linux says how much memory was used at most")


def found_by(run: Callable[[bytes], object], *inputs: bytes) -> list[Finding]:
    found: list[Finding] = []
    judge = Judge(Target("t", run, list, (MalformedMessage,)), found.append)
    judge.watch()
    try:
        for data in inputs:
            judge(data)
    finally:
        judge.watch(False)
    return found


def test_a_refusal_is_no_finding_and_any_other_exception_is_one() -> None:
    """Past the end of the buffer this reader raises IndexError, which its callers turn into a rejection."""
    found = found_by(lambda data: read_varlong(data, 0), b"\xff" * 12, b"\x01", b"\xff")
    assert [(finding.kind, finding.data) for finding in found] == [
        ("IndexError in protocol/primitives.py:read_varlong", b"\xff")
    ]


def test_what_hangs_is_interrupted_and_the_next_input_is_run() -> None:
    def endless(data: bytes) -> None:
        while data:
            pass

    found = found_by(endless, b"x", b"")
    assert [finding.kind for finding in found] == [TOO_LONG]


@on_linux
def test_what_takes_too_much_memory_is_found() -> None:
    found = found_by(lambda data: len(b"x" * MANY) if data else None, b"", b"x", b"")
    assert TOO_MUCH in {finding.kind for finding in found}
    assert {finding.data for finding in found} == {b"x"}


@on_linux
def test_what_takes_too_much_memory_is_found_where_the_heap_has_enough_of_it_free() -> None:
    """The test has a process of its own, because the last piece, which keeps the heap from shrinking, must lie above the
    others.
    """
    program = f"""if True:
        from tests.fuzz.test_judge import *
        pieces = [b"x" * (100 * 1024) for _ in range(3 * MANY // (100 * 1024))]
        last = pieces.pop()
        del pieces
        {test_what_takes_too_much_memory_is_found.__name__}()"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@on_linux
def test_what_takes_too_much_memory_is_found_in_a_process_that_a_larger_one_has_started() -> None:
    """The kernel lets ru_maxrss begin with the size of the process that called exec."""
    larger = b"x" * (3 * MANY)
    program = f"from tests.fuzz.test_judge import *\n{test_what_takes_too_much_memory_is_found.__name__}()"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
    del larger


def test_a_typed_error_that_is_no_refusal_goes_by_where_it_leaves_the_product() -> None:
    found = found_by(lambda data: encode(HeartbeatRequest(), 99), b"")
    assert [finding.kind for finding in found] == ["UnsupportedVersion out of protocol/compile.py:encode"]
