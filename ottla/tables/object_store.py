"""S3, GCS and Azure as a store, by obstore. Each call has one deadline, which includes the library's own retries."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import from_url

from ottla.protocol.primitives import Buffer
from ottla.tables.store import StoredObject, StoreFailure, StoreRefused

#: The time limits of one request, and of one call with all its repeated requests.
REQUEST_S, CALL_S, RETRIES_MAX = 20, 60, 3

CODE = re.compile(r"<Code>(\w{1,64})</Code>")
#: obstore raises this for an unknown option. It is not derived from Exception, and would end the process.
PANIC = "PanicException"


class ObjectStore:
    """The objects below `s3://BUCKET/PREFIX`, `gs://...` or `az://...`."""

    def __init__(self, url: str, options: dict[str, str]) -> None:
        """Take the address and obstore's options (`endpoint`, `access_key_id`, `region` ...); the environment has the rest.

        Raises:
            StoreRefused: the address or an option is wrong.
        """
        self._url = url.rstrip("/")
        client: dict[str, Any] = {"timeout": timedelta(seconds=REQUEST_S), "connect_timeout": timedelta(seconds=5)}
        own = (os.environ.get(name, "") for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT"))
        if any(each.startswith("http://") for each in (options.get("endpoint", ""), *own)):
            client["allow_http"] = True
        retries: Any = {"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=CALL_S)}
        given: dict[str, Any] = dict(options)
        try:
            self._store: Any = from_url(url, client_options=client, retry_config=retries, **given)
        except (BaseError, ValueError, TypeError) as fault:
            raise StoreRefused(f"{url}: {_first_line(fault)}") from fault
        except BaseException as fault:
            if type(fault).__name__ != PANIC:
                raise
            raise StoreRefused(f"{url}: one of the options {', '.join(sorted(options))} is unknown: {fault}") from fault

    @property
    def url(self) -> str:
        return self._url

    def put(self, name: str, data: bytes | memoryview) -> None:
        with _failing(name):
            obstore.put(self._store, name, data)  # in parts above 5 MiB, which are aborted if the call fails

    def put_parts(self, name: str, parts: Iterator[bytes]) -> None:
        with _failing(name):
            obstore.put(self._store, name, parts)

    def put_if_absent(self, name: str, data: bytes) -> bool:
        with _failing(name):
            try:
                obstore.put(self._store, name, data, mode="create", use_multipart=False)
            except AlreadyExistsError:
                # Perhaps this very call has written it: the library repeats a request after a lost response.
                return self.get(name) == data
        return True

    def get(self, name: str) -> bytes | None:
        with _failing(name):
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def size(self, name: str) -> int | None:
        with _failing(name):
            try:
                return int(obstore.head(self._store, name)["size"])
            except FileNotFoundError:
                return None

    def get_range(self, name: str, start: int, length: int) -> Buffer:
        """Return a view: a copy of 4 MiB would keep the event loop of a node from running for 1 to 3 ms (GIL)."""
        with _failing(name):
            return memoryview(obstore.get_range(self._store, name, start=start, length=length))

    def copy(self, source: str, target: str) -> None:
        with _failing(target):
            obstore.copy(self._store, source, target)

    def list(self, folder: str, after: str = "") -> Iterator[StoredObject]:
        with _failing(folder):
            for rows in obstore.list(self._store, folder, offset=after or None):
                for row in sorted(rows, key=lambda row: str(row["path"])):
                    yield StoredObject(row["path"], row["size"], int(row["last_modified"].timestamp() * 1000))

    def folders(self, folder: str) -> Sequence[str]:
        with _failing(folder):
            found = obstore.list_with_delimiter(self._store, folder)
            return sorted(str(each).rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    def sweep(self, before_ms: int) -> Iterator[str]:
        """Yield nothing: an object is written as a whole, and a rule of the bucket removes the parts of aborted uploads."""
        return iter(())

    def delete(self, name: str) -> None:
        with _failing(name):
            try:
                obstore.delete(self._store, name)
            except FileNotFoundError:
                return


@contextmanager
def _failing(name: str) -> Iterator[None]:
    try:
        yield
    except (PermissionDeniedError, UnauthenticatedError) as fault:
        raise StoreRefused(f"{name}: {_first_line(fault)}") from fault
    except (BaseError, OSError) as fault:
        raise StoreFailure(f"{name}: {_first_line(fault)}") from fault


def _first_line(fault: Exception) -> str:
    """Return the library's message without its internal details, and the code of S3, such as NoSuchBucket, which is on a later line."""
    text = str(fault)
    code = CODE.search(text)
    return text.partition("\n")[0] + (f" ({code[1]})" if code else "")
