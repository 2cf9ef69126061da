"""Log lines: Kafka's form, one line per event whatever names clients choose, and no delay for the node."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from ottla.server import log_setup
from ottla.server.log_setup import LINE_LENGTH_MAX, QUEUED_MAX, BatchWriter, LogFile, Stream, set_up

#: A logger that no other test uses.
OWN = "ottla.server.network.of_this_test"
LINE = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] (INFO|WARNING|ERROR) (.*) \((.*)\)")


@pytest.fixture
def root_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def begin(stream: Stream) -> BatchWriter:
    """Call `set_up`, and filter its handler: only the loggers of these tests write to the stream, not the threads that others left."""
    others = list(logging.getLogger().handlers)
    writer = set_up("info", stream)
    for handler in logging.getLogger().handlers:
        if handler not in others:
            handler.addFilter(lambda record: record.name in (OWN, "a", log_setup.log.name))
    return writer


@pytest.mark.usefixtures("root_as_it_was")
def test_lines_have_kafkas_form() -> None:
    out = io.StringIO()
    writer = begin(out)
    logging.getLogger(OWN).info("[%s] Awaiting socket connections on %s:%d.", "PLAINTEXT", "0.0.0.0", 9092)
    logging.getLogger(OWN).debug("not this")
    writer.close()
    (line,) = out.getvalue().splitlines()
    match = LINE.fullmatch(line)
    assert match is not None
    assert match.groups() == (
        "INFO",
        "[PLAINTEXT] Awaiting socket connections on 0.0.0.0:9092.",
        OWN,
    )


@pytest.mark.usefixtures("root_as_it_was")
def test_a_client_cannot_write_lines_of_its_own() -> None:
    out = io.StringIO()
    writer = begin(out)
    logging.getLogger("a").warning("client %s", "x\n[2026-01-01 00:00:00,000] ERROR forged\r\x1b[31m")
    writer.close()
    assert len(out.getvalue().splitlines()) == 1
    assert "x\\n[2026" in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.usefixtures("root_as_it_was")
def test_a_message_as_long_as_a_clients_name_is_cut() -> None:
    out = io.StringIO()
    writer = begin(out)
    logging.getLogger("a").warning("client %s", "x" * 100_000)
    writer.close()
    assert f"{'x' * 100}... (100007 characters)" in out.getvalue() and len(out.getvalue()) < LINE_LENGTH_MAX + 200


@pytest.mark.usefixtures("root_as_it_was")
def test_a_traceback_follows_its_line() -> None:
    out = io.StringIO()
    writer = begin(out)
    try:
        raise ZeroDivisionError("a bug")
    except ZeroDivisionError:
        logging.getLogger("a").exception("It broke")
    writer.close()
    assert "It broke (a)\nTraceback" in out.getvalue()
    assert "ZeroDivisionError: a bug" in out.getvalue()


class StuckStream(io.StringIO):
    """A pipe without a reader, until `read` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def write(self, text: str) -> int:
        self.gate.wait()
        return super().write(text)


@pytest.mark.usefixtures("root_as_it_was")
def test_a_stuck_stream_costs_events_and_no_time() -> None:
    out = StuckStream()
    writer = begin(out)
    log = logging.getLogger("a")
    for number in range(QUEUED_MAX + 500):
        log.info("event %d", number)
    out.gate.set()
    while writer._events.qsize():
        threading.Event().wait(0.01)
    log.info("afterwards")
    writer.close()
    assert "events were not logged" in out.getvalue()
    assert "afterwards" in out.getvalue()


class FullDisk(io.StringIO):
    """A file on a disk that is full for a while. As in `ottla dev`, standard error goes there, too."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False
        self.refused = threading.Event()

    def write(self, text: str) -> int:
        if self.is_full:
            self.refused.set()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(text)


@pytest.mark.usefixtures("root_as_it_was")
def test_after_a_full_disk_lines_are_written_again_and_those_that_are_missing_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = FullDisk()
    monkeypatch.setattr("sys.stderr", out)
    writer = begin(out)
    log = logging.getLogger("a")
    log.info("before")
    while "before" not in out.getvalue():
        threading.Event().wait(0.01)
    out.is_full = True
    for number in range(3):
        out.refused.clear()
        log.info("while it is full: %d", number)
        assert out.refused.wait(30)
    while writer._events.qsize():
        threading.Event().wait(0.01)
    out.is_full = False
    log.info("after")
    while "after" not in out.getvalue() or writer._events.qsize():
        threading.Event().wait(0.01)
    log.info("and later")
    writer.close()
    lines = out.getvalue().splitlines()
    assert [line.split("] ", 1)[1] for line in lines] == [
        "INFO before (a)",
        "INFO after (a)",
        "WARNING At most 3 events are missing before the last ones: they could not be written"
        " ([Errno 28] No space left on device) (ottla.server.log_setup)",
        "INFO and later (a)",
    ]


@pytest.mark.usefixtures("root_as_it_was")
def test_a_closed_pipe_is_said_once_on_standard_error_and_the_thread_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    monkeypatch.setattr("sys.stderr", errors)
    with suppress(BrokenPipeError), os.fdopen(writing, "w") as pipe:
        writer = begin(pipe)
        for _ in range(3):
            logging.getLogger("a").info("into a closed pipe")
            while writer._events.qsize():
                threading.Event().wait(0.01)
        writer.close()
        assert writer._missing == 3
    assert errors.getvalue().count("BrokenPipeError") == 1


@pytest.mark.usefixtures("root_as_it_was")
def test_a_full_log_file_is_renamed_and_the_oldest_goes(tmp_path: Path) -> None:
    path = tmp_path / "node.log"
    for number in range(4):  # each start of the process appends to the existing file
        writer = begin(LogFile(str(path), bytes_max=60, kept=2))
        logging.getLogger("a").info("the line with the number %d", number)
        writer.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["node.log", "node.log.1", "node.log.2"]
    assert [(tmp_path / name).read_text()[-7:-5] for name in ("node.log.2", "node.log.1", "node.log")] == [
        " 1",
        " 2",
        " 3",
    ]


@pytest.mark.usefixtures("root_as_it_was")
def test_a_character_that_turns_the_direction_of_a_line_round_is_shown_as_its_number() -> None:
    out = io.StringIO()
    writer = begin(out)
    logging.getLogger("a").warning("client %s", "\u202egnihton\u2066\u200f\u2028\x85\ufeff J\u00fcrgen")
    writer.close()
    assert r"client \u202egnihton\u2066\u200f\u2028\x85\ufeff J" + "\u00fcrgen" in out.getvalue()
