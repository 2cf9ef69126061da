"""DuckDB with its extensions as packages of PyPI have them: nothing is fetched when it runs. For tests and benchmarks of tables.

`pip install duckdb==1.4.4 duckdb-ext-iceberg duckdb-ext-avro duckdb-ext-httpfs duckdb-ext-delta`; the extensions are of that release.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

#: Each extension comes after those that it needs.
EXTENSIONS = ("httpfs", "avro", "iceberg", "delta")


def missing(*names: str) -> str | None:
    """Return the reason why these extensions cannot be loaded here."""
    for package in ("duckdb", "duckdb_ext") if names else ("duckdb",):
        if importlib.util.find_spec(package) is None:
            return f"the package {package.replace('_', '-')} is not installed"
    absent = [name for name in names if _file(name) is None]
    return f"the package duckdb-ext-{absent[0]} is not installed" if absent else None


def connected(*names: str) -> Any:
    """Return a connection to a database in memory, with these extensions."""
    import duckdb

    database = duckdb.connect(":memory:", config={"allow_unsigned_extensions": "true"})
    for name in names:
        database.execute(f"LOAD '{_file(name)}'")
    return database


def _file(name: str) -> Path | None:
    import duckdb_ext

    return next(
        (file for folder in duckdb_ext.__path__ for file in Path(folder).rglob(f"{name}.duckdb_extension")), None
    )
