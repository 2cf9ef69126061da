"""An object of a store as a file with random access, for libraries that read a Parquet file's footer."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq

from ottla.columns.evolution import evolved
from ottla.tables.store import Store
from ottla.tables.table import AddedFile, TableRefused


class StoredFile(io.RawIOBase):
    """Reads one object in ranges."""

    def __init__(self, store: Store, name: str, size: int) -> None:
        super().__init__()
        self._store, self._name, self._size, self._at = store, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        data = self._store.get_range(self._name, self._at, end - self._at) if end > self._at else b""
        self._at += len(data)
        return bytes(data)


def schema_of(store: Store, files: tuple[AddedFile, ...]) -> pa.Schema | None:
    """Return the columns of all files together; None without files.

    Raises:
        TableRefused: the columns of two files do not fit. The registry has accepted a schema that a table cannot follow.
    """
    found: pa.Schema | None = None
    for file in files:
        schema = pq.read_schema(pa.PythonFile(StoredFile(store, file.name, file.size), "r")).remove_metadata()
        merged = schema if found is None or schema == found else evolved(found, [*schema])
        if isinstance(merged, str):
            raise TableRefused(f"the columns of {file.name} fit no other's: {merged}")
        found = merged
    return found
