"""The command `ottla inspect PATH ...`: it prints what the files of a log directory have, without a broker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import Output, run
from ottla.cli.dump import DUMPS, Row, dump_log
from ottla.cli.errors import OK, UNHEALTHY, USAGE, CommandFailed
from ottla.cli.output import note, print_json, print_rows
from ottla.storage.files import Files, OsFiles
from ottla.storage.log_files import BATCH_SUFFIXES

app = App("inspect", "Print what is in the files of a log directory, without a broker.")

BATCH_COLUMNS = (
    "position",
    "base_offset",
    "last_offset",
    "count",
    "size",
    "codec",
    "leader_epoch",
    "max_timestamp",
    "producer_id",
    "base_sequence",
    "flags",
)

main = partial(run, app)


@app.default
def inspect(
    paths: list[str],
    /,
    *,
    records: Annotated[
        bool, Parameter(name=("--records", "-r"), help="Records instead of batches, as JSON lines.")
    ] = False,
    output: Output = "table",
) -> int:
    """Print segments, indexes and snapshots: files, or a partition's directory with all its segments.

    Records of internal topics are decoded. CRCs are checked; exit code 3 when a batch is bad.
    """
    files = OsFiles()
    problems = 0
    for path in chain.from_iterable(map(_expand, paths)):
        rows = _rows(files, path, records)
        is_log = path.endswith(BATCH_SUFFIXES)
        lines = output == "json" or (records and is_log)
        shown: list[Row] = []
        for row in rows:
            if text := row.get("problem") or row.get("note"):
                note(f"{path}: {text}")
                problems += "problem" in row
            if lines:
                print_json({"file": path, **row})
            elif not row.keys() & {"problem", "note"}:
                shown.append(row)
        if shown:
            note(path)
            print_rows(shown, BATCH_COLUMNS if is_log else tuple(shown[0]), output)
    return UNHEALTHY if problems else OK


def _rows(files: Files, path: str, records: bool) -> Iterator[Row]:
    if path.endswith(BATCH_SUFFIXES):
        return dump_log(files, path, records=records)
    suffix = os.path.splitext(path)[1]
    if suffix not in DUMPS:
        known = ", ".join((*BATCH_SUFFIXES, *DUMPS))
        raise CommandFailed(f"{path} is not a file of a log", f"known are {known}; others are plain text", USAGE)
    return DUMPS[suffix](files, path)


def _expand(path: str) -> list[str]:
    if not os.path.exists(path):
        raise CommandFailed(f"there is no {path}", "name a segment file or a partition's directory", USAGE)
    if not os.path.isdir(path):
        return [path]
    segments = sorted(name for name in os.listdir(path) if name.endswith(BATCH_SUFFIXES))
    if not segments:
        parts = sorted(name for name in os.listdir(path) if os.path.isdir(os.path.join(path, name)))
        hint = f"did you mean one of its directories, such as {parts[0]}?" if parts else None
        raise CommandFailed(f"{path} holds no segment", hint, USAGE)
    return [os.path.join(path, name) for name in segments]
