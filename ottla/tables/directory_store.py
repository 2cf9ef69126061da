"""A folder as a store, for `file://` addresses and paths.

When `put` returns, the object is on the disk. `put_if_absent` makes a hard link, which fails if the name exists, on each file
system that Ottla runs on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from uuid import uuid4

from ottla.tables.store import StoredObject, StoreFailure, StoreRefused

#: Files of killed writers have this in their names; listings leave them out.
UNFINISHED = ".unfinished-"


class DirectoryStore:
    """The objects below a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder).absolute()

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def put(self, name: str, data: bytes | memoryview) -> None:
        self.put_parts(name, iter((data,)))

    def put_parts(self, name: str, parts: Iterator[bytes | memoryview]) -> None:
        with self._written(name, parts) as written:
            os.replace(written, self._path(name))
            self._sync(name)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with self._written(name, iter((data,))) as written:
            try:
                os.link(written, self._path(name))
            except FileExistsError:
                return False
            self._sync(name)
        return True

    def get(self, name: str) -> bytes | None:
        with _failing(name):
            try:
                return self._path(name).read_bytes()
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        with _failing(name):
            try:
                return self._path(name).stat().st_size
            except FileNotFoundError:
                return None

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with _failing(name), self._path(name).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), length, start)

    def copy(self, source: str, target: str) -> None:
        path = self._path(target)
        unfinished = path.with_name(f"{UNFINISHED}{uuid4().hex}")
        with _failing(target):
            path.parent.mkdir(parents=True, exist_ok=True)
            os.link(self._path(source), unfinished)
            os.replace(unfinished, path)
            unfinished.unlink(missing_ok=True)  # if both are the same file already, nothing is replaced
            self._sync(target)

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        with _failing(folder):
            yield from self._listed(f"{folder}/".lstrip("/"), after)

    def _listed(self, prefix: str, after: str) -> Iterator[StoredObject]:
        """Yield the objects below a folder, whose name ends with a slash, in the order of full names.

        Folders before `after` are not read.
        """
        try:
            with os.scandir(self.folder / prefix) as scanned:
                named = ((f"{prefix}{each.name}{'/' if each.is_dir() else ''}", each) for each in scanned)
                entries = [(name, each) for name, each in named if name > after or name.endswith("/")]
        except FileNotFoundError:
            return
        for name, entry in sorted(entries, key=itemgetter(0)):
            if name.endswith("/"):
                if name > after or after.startswith(name):
                    yield from self._listed(name, after)
            elif name > after and UNFINISHED not in name:
                with suppress(FileNotFoundError):  # the object is being replaced, or swept
                    status = entry.stat()
                    if entry.is_file():
                        yield StoredObject(name, status.st_size, status.st_mtime_ns // 1_000_000)

    def folders(self, folder: str) -> Sequence[str]:
        with _failing(folder):
            try:
                return sorted(each.name for each in self._path(folder).iterdir() if each.is_dir())
            except FileNotFoundError:
                return []

    def sweep(self, before_ms: int) -> Iterator[str]:
        with _failing("."):
            for path in self.folder.rglob(f"{UNFINISHED}*"):
                with suppress(FileNotFoundError):  # its writer is about to finish it
                    if path.stat().st_mtime_ns // 1_000_000 <= before_ms:
                        path.unlink()
                        yield path.relative_to(self.folder).as_posix()

    def delete(self, name: str) -> None:
        with _failing(name):
            self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        assert not name.startswith("/") and ".." not in name.split("/"), name
        return self.folder / name

    @contextmanager
    def _written(self, name: str, parts: Iterator[bytes | memoryview]) -> Iterator[Path]:
        path = self._path(name)
        unfinished = path.with_name(f"{UNFINISHED}{uuid4().hex}")
        with _failing(name):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with unfinished.open("wb") as file:
                    file.writelines(parts)
                    file.flush()
                    os.fsync(file.fileno())
                yield unfinished
            finally:
                unfinished.unlink(missing_ok=True)

    def _sync(self, name: str) -> None:
        descriptor = os.open(self._path(name).parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _failing(name: str) -> Iterator[None]:
    try:
        yield
    except PermissionError as fault:
        raise StoreRefused(f"{name}: {fault.strerror}") from fault
    except OSError as fault:
        raise StoreFailure(f"{name}: {fault.strerror}") from fault
