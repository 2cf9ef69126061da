"""The only interface to an object store.

`DirectoryStore` is a folder, `ObjectStore` is S3, GCS or Azure by a library; the simulator has a store with faults.

Names are relative, with slashes, without a leading one. All calls block: they run in the process beside the node, or on a
thread. A call that fails raises `StoreFailure`. Then it is not known whether the call had its effect, and the caller has to
read the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from ottla.protocol.primitives import Buffer


class StoreFailure(Exception):
    """The store has not responded in time, or with an error. The call may have had its effect."""


class StoreRefused(StoreFailure):
    """The store rejects the call because of credentials, permissions, or a missing bucket. Another attempt does not help."""


class StoredObject(NamedTuple):
    """An object in a listing."""

    name: str
    size: int
    modified_ms: int


class Store(Protocol):
    """A store of objects. Each call has a deadline."""

    @property
    def url(self) -> str:
        """The address that readers of a table get, without a slash at its end."""

    def put(self, name: str, data: bytes | memoryview) -> None:
        """Write or replace an object as a whole: readers see the old one or the new one."""

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        """Write an object whose parts are made one by one, as `put` does. An exception of the iterator leaves no object."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        """Write an object unless its name exists. Return whether it was written. This is the compare-and-set of tables."""

    def get(self, name: str) -> bytes | None: ...

    def size(self, name: str) -> int | None: ...

    def get_range(self, name: str, start: int, length: int) -> Buffer: ...

    def copy(self, source: str, target: str) -> None:
        """Give an object a second name, without reading its bytes. The target is replaced."""

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        """Yield the objects below a folder in the order of their names, only those after this name."""

    def folders(self, folder: str) -> Sequence[str]:
        """Return the names of the folders in a folder, in order. Their contents are not listed."""

    def sweep(self, before_ms: int) -> Iterator[str]:
        """Delete partial objects that killed writers left before this time, and yield each. No listing has these."""

    def delete(self, name: str) -> None:
        """Remove an object. If it does not exist, that is no failure."""
