"""Progress of long steps: rate, remaining time, and where it is shown."""

from __future__ import annotations

import io
import json

from ottla.cli.progress import WINDOW_MS, Pace, ProgressLine
from ottla.cli.units import duration_text, size_text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_rate_is_that_of_the_last_seconds_and_not_of_a_slow_beginning() -> None:
    pace = Pace(0)
    assert (pace.per_s, pace.seconds_left(10)) == (0.0, None)
    pace.add(60_000, 10)
    for second in range(1, 21):
        pace.add(60_000 + second * 1000, 10 + second * 100)
    assert round(pace.per_s) == 100 and WINDOW_MS == 10_000
    assert pace.seconds_left(3010) == 10.0
    assert pace.seconds_left(100) == 0.0


def test_a_step_that_went_on_from_before_has_the_rate_of_what_it_did_itself() -> None:
    progress = ProgressLine("copying", 2000, "bytes", 0, Terminal(), done=1000)
    progress.update(1500, 1000)
    assert progress.row() == {
        "progress": "copying", "unit": "bytes", "done": 1500, "total": 2000, "per_s": 500.0, "seconds_left": 1.0
    }  # fmt: skip
    assert progress.text() == "copying: 1.5 kB of 2.0 kB (75%), 500 B/s, 1 s left"


def test_a_pipe_gets_a_json_line_each_second_and_a_terminal_one_line() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        with ProgressLine("moving \x1b[2J", 4000, "records", 0, stream) as progress:
            for ms in range(100, 4001, 100):
                progress.update(ms, ms)
    assert [json.loads(line)["done"] for line in pipe.getvalue().splitlines()] == [1000, 2000, 3000, 4000]
    lines = terminal.getvalue().split("\r")
    assert len(lines) == 21 and lines[-1].endswith("(100%), 1,000 records/s, 0 s left\x1b[K\n")
    assert "\\x1b[2J" in lines[-1]


def test_what_ends_within_a_second_prints_nothing_into_a_pipe() -> None:
    pipe = io.StringIO()
    with ProgressLine("short", None, "records", 0, pipe) as progress:
        progress.update(5, 900)
    assert pipe.getvalue() == "" and progress.text() == "short: 5 records, 6 records/s"


def test_sizes_and_durations_are_short() -> None:
    assert [size_text(n) for n in (0, 999, 1500, 2.5e9, 1e18)] == ["0 B", "999 B", "1.5 kB", "2.5 GB", "1000.0 PB"]
    assert [duration_text(n) for n in (0.4, 59.4, 63, 7500)] == ["0 s", "59 s", "1 min 3 s", "2 h 5 min"]
