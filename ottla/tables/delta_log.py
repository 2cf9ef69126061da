"""Commits of a Delta table that only add files: objects of its log, which are put if there is none of their number.

delta-rs lists the log at each commit, and in a folder it looks at all of it, which has 30 days of versions: 62 ms of processor after 3,000
commits. Such a commit needs nothing of the log but the number of the version that it comes after. What changes columns, properties, or files
that are there goes through the library.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.tables.store import Store
from ottla.tables.table import TableRefused

#: The features of writers that ask nothing of a commit which only adds files.
PLAIN_FEATURES = frozenset(
    (
        "appendOnly", "changeDataFeed", "deletionVectors", "domainMetadata", "invariants", "timestampNtz", "typeWidening", "v2Checkpoint",
        "vacuumProtocolCheck",
    )
)  # fmt: skip
#: Tables of this version of writers and below have no features but two of these; from 7 on they are named.
PLAIN_WRITER, NAMED_FEATURES = 2, 7
#: What only the library follows.
OF_LIBRARY = ("metaData", "protocol")


class LogEnd(NamedTuple):
    """The newest version of a table as it was read."""

    version: int
    #: The bytes of its entry. A table that was dropped and made again has others.
    entry: bytes
    #: The number of the last decision.
    sequence: int


class DeltaLog:
    """The log in a folder of the store. `application` names the entries that have the number of the last decision."""

    def __init__(self, store: Store, folder: str, application: str) -> None:
        self._store = store
        self._folder = folder
        self._application = application

    def entry(self, version: int) -> bytes | None:
        return self._store.get(self._name(version))

    def follow(self, end: LogEnd) -> LogEnd | None:
        """Return where the log ends, from a version on that was known; None if only the library can say. Raises StoreFailure."""
        if self.entry(end.version) != end.entry:
            return None
        while (entry := self.entry(end.version + 1)) is not None:
            try:
                actions: list[dict[str, Any]] = [json.loads(line) for line in entry.splitlines() if line.strip()]
                if any(name in each for each in actions for name in OF_LIBRARY):
                    return None
                entries = [each["txn"] for each in actions if "txn" in each]
                own = [int(each["version"]) for each in entries if each["appId"] == self._application]
            except (KeyError, TypeError, ValueError, RecursionError):
                return None
            end = LogEnd(end.version + 1, entry, own[-1] if own else end.sequence)
        return end

    def append(
        self, version: int, sequence: int, adds: Iterable[dict[str, Any]], partition_by: list[str], more: dict[str, str]
    ) -> bool:
        """Make this version, of files and the number of a decision; return False if it is there. Raises StoreFailure."""
        now_ms = int(time.time() * 1000)
        about = {
            "timestamp": now_ms,
            "operation": "WRITE",
            "operationParameters": {"mode": "Append", "partitionBy": json.dumps(partition_by)},
            "isBlindAppend": True,
            "engineInfo": "ottla",
            **more,
        }
        entry = {"appId": self._application, "version": sequence, "lastUpdated": now_ms}
        actions = [{"commitInfo": about}, {"txn": entry}, *({"add": each} for each in adds)]
        return self._store.put_if_absent(self._name(version), "\n".join(map(json.dumps, actions)).encode())

    def _name(self, version: int) -> str:
        return f"{self._folder}/_delta_log/{version:020}.json".lstrip("/")


def check_writer(place: str, version: int, features: Iterable[str]) -> None:
    """Raise TableRefused if the table wants more of its writers than `DeltaLog.append` does: another engine has set it."""
    unknown = sorted({*features} - PLAIN_FEATURES) if version >= NAMED_FEATURES else [f"version {version} of writers"]
    if version > PLAIN_WRITER and unknown:
        raise TableRefused(f"{place} needs {', '.join(unknown)} of Delta's protocol, which Ottla does not write")
