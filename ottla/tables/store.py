"""The only interface to an object store. `DirectoryStore` is a folder, `ObjectStore` is S3, GCS or Azure by a library; the
simulator has one with faults.

Names are relative, with slashes, without a leading one. All calls block: they run in the process beside the node, or on a thread.
A call that fails raises `StoreFailure`; whether it had its effect is then unknown, and a caller finds out by looking.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol


class StoreFailure(Exception):
    """The store has not answered in time, or with an error. The call may have had its effect."""


class StoreRefused(StoreFailure):
    """The store knows us and says no: credentials, rights, a bucket that is missing. Trying again does not help."""


class StoredObject(NamedTuple):
    """An object as a listing has it."""

    name: str
    size: int
    modified_ms: int


class Store(Protocol):
    """A place of objects. Each call has a deadline."""

    @property
    def url(self) -> str:
        """The address that readers of a table are given, without a slash at its end."""

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write an object whole, or replace it: readers see the old one or the new one."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one of this name; return whether it was written. This is the compare-and-set of tables."""

    def get(self, name: str) -> bytes | None: ...

    def size(self, name: str) -> int | None: ...

    def get_range(self, name: str, start: int, length: int) -> bytes: ...

    def copy(self, source: str, target: str) -> None:
        """Give an object a second name, without its bytes passing here. The target is replaced."""

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        """Yield the objects below a folder in the order of their names, those after this name only."""

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders in a folder, in their order: what is in them is not listed."""

    def sweep(self, before_ms: int) -> Iterator[str]:
        """Delete what was left half written before this time, by writers that were killed, and yield each. No listing has it."""

    def delete(self, name: str) -> None:
        """Remove an object. It is no failure if there is none."""
