"""Texts that the perf tools share: times by a pattern of Java's SimpleDateFormat, and the warning of a run with too few records."""

from __future__ import annotations

import argparse
import re
from datetime import datetime

from ottla.cli.load.measured import Measured
from ottla.cli.shims.tool import ToolParser

MIB = 1024 * 1024
#: The letters of Java's SimpleDateFormat, and the strftime directive of each. strftime has none for SSS, the milliseconds.
DATE_PARTS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "hh": "%I",
    "mm": "%M",
    "ss": "%S",
    "a": "%p",
}
DATE_FORMAT = "yyyy-MM-dd HH:mm:ss:SSS"


def too_few(options: argparse.Namespace) -> str:
    return (
        f"WARNING: Exiting before consuming the expected number of records: timeout ({options.timeout} ms) exceeded. "
        "You can use the --timeout option to increase the timeout."
    )


def milliseconds(measured: Measured, now_ns: int) -> int:
    """Return the length of the run in milliseconds, at least 1."""
    return int(measured.seconds(now_ns) * 1000)


def add_date_format(parser: ToolParser) -> None:
    """Add --date-format, whose value is checked when it is parsed."""
    parser.add_argument("--date-format", default=DATE_FORMAT, type=date_format)


def date_format(text: str) -> str:
    """Return a pattern of SimpleDateFormat. Raise ValueError if it has letters that are not in DATE_PARTS, or a quote."""
    for letters, _ in _runs(text):
        if letters not in DATE_PARTS and letters != "SSS":
            raise ValueError(f"Illegal pattern '{letters}'")
    if "'" in text:
        raise ValueError("a quoted text is not served here")
    return text


def _runs(pattern: str) -> list[tuple[str, str]]:
    """Return the runs of the same letter, each with the text after it."""
    return [(found[1], found[3]) for found in re.finditer(r"(([A-Za-z])\2*)([^A-Za-z]*)", pattern)]


def times_text(options: argparse.Namespace, *moments_ms: int) -> str:
    """Return a local time by the pattern of --date-format, which `date_format` has checked."""
    return ", ".join(_time_text(moment_ms, options.date_format) for moment_ms in moments_ms)


def _time_text(wall_ms: int, pattern: str) -> str:
    moment = datetime.fromtimestamp(wall_ms / 1000)
    start = re.match(r"[^A-Za-z]*", pattern)
    written = "" if start is None else start[0]
    for letters, behind in _runs(pattern):
        written += f"{wall_ms % 1000:03d}" if letters == "SSS" else moment.strftime(DATE_PARTS[letters])
        written += behind
    return written
