"""Reads what the stages wrote, without Spark: only what is finished counts.

The file sink's log names finished files; other files in the folder come from a task that died. The log has one text file for
each batch, and every tenth is a `.compact` file with all before it. Each line after the first is JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.pipeline import upsert
from ottla.pipeline.config import Config


def finished_files(folder: str) -> list[str]:
    log = Path(folder) / "_spark_metadata"
    if not log.is_dir():
        return []
    batches = {
        int(file.name.partition(".")[0]): file for file in log.iterdir() if file.name.partition(".")[0].isdigit()
    }
    compacts = {int(file.name.partition(".")[0]) for file in log.glob("*.compact")}
    # For a moment a batch may have both forms; the compact one has everything.
    batches |= {number: log / f"{number}.compact" for number in compacts}
    first = max(compacts, default=0)
    paths: list[str] = []
    for number in sorted(batches):
        if number >= first:
            paths += [json.loads(line)["path"] for line in batches[number].read_text().splitlines()[1:]]
    return [unquote(urlparse(path).path) for path in paths]


def sink(config: Config, name: str, columns: list[str]) -> Any:
    """Return a table of the file sink (bronze, silver) as Arrow."""
    return parquet(finished_files(config.path(name)), columns)


def gold(config: Config, name: str) -> Any:
    """Return an upsert table as Arrow."""
    return parquet(upsert.files(config.path("gold", name)), None)


def parquet(files: list[str], columns: list[str] | None) -> Any:
    # ParquetFile, not read_table: here the folder names (date=...) are no columns.
    found = [pq.ParquetFile(file).read(columns=columns) for file in files]
    return pa.concat_tables(found) if found else None


def rows(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist() if table is not None else []
    return found
