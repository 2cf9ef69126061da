"""One log of several processes: no line is broken or lost, and each has the name of its process."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from ottla.processes import one_log
from ottla.processes.one_log import Lines, OneLog


@pytest.mark.parametrize(
    "chunks, written",
    [
        ([b"one\ntwo\n"], b"[7] one\n[7] two\n"),
        ([b"o", b"n", b"e\nt", b"wo"], b"[7] one\n[7] two\n"),
        ([b"\n"], b"[7] \n"),
        ([], b""),
        ([b"killed within a li"], b"[7] killed within a li\n"),
    ],
)
def test_lines_are_whole_however_they_arrive(chunks: list[bytes], written: bytes) -> None:
    lines = Lines("[7] ")
    assert b"".join([lines.feed(chunk) for chunk in chunks]) + lines.end() == written


def test_a_line_without_end_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_log, "LINE_BYTES_MAX", 10)
    assert Lines("[7] ").feed(b"x" * 11) == b"[7] " + b"x" * 11 + b"\n"


def test_processes_that_write_at_once_do_not_write_into_each_others_lines(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as out:
        log = OneLog(out.fileno())

        def write(name: str, write_fd: int) -> None:
            with open(write_fd, "wb", buffering=0) as pipe:
                for number in range(500):
                    line = f"{number} {name * 50}\n".encode()
                    for part in (line[:20], line[20:]):
                        pipe.write(part)

        writers = [threading.Thread(target=write, args=(name, log.pipe(name))) for name in map(str, range(4))]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        log.join(30)
    written = (tmp_path / "log").read_text().splitlines()
    for name in map(str, range(4)):
        own = [line for line in written if line.startswith(f"[{name}] ")]
        assert own == [f"[{name}] {number} {name * 50}" for number in range(500)]


def test_a_log_without_a_reader_stops_no_process() -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    log = OneLog(write_fd)
    with open(log.pipe("1"), "wb", buffering=0) as pipe:
        for _ in range(100):
            pipe.write(b"x" * 10_000 + b"\n")
    log.join(30)
    os.close(write_fd)
