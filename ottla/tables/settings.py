"""What a topic's configuration says of its table. Of the names that a broker knows, without the libraries of tables."""

from __future__ import annotations

from typing import NamedTuple

ICEBERG, DELTA, PARQUET = "iceberg", "delta", "parquet"
FORMATS = (ICEBERG, DELTA, PARQUET)
BYTES, STRING = "bytes", "string"
#: No catalog: the metadata's files alone.
FILES = "files"


class TableSettings(NamedTuple):
    """What a topic's configuration says of its table."""

    format: str
    #: The address below which all tables lie: a path, `file://`, `s3://`, `gs://` or `az://`.
    location: str
    #: Of Iceberg: `files`, the address of a REST catalog, or of a database (`sqlite:///...`, `postgresql://...`).
    catalog: str = FILES
    key: str = BYTES
    value: str = BYTES
    #: Options of the store by obstore's names, and of the catalog by pyiceberg's.
    options: dict[str, str] = {}  # noqa: RUF012  # a named tuple's default, which nobody changes
