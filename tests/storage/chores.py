"""The regular tasks of a broker for each log directory, run at once and for all of them."""

from __future__ import annotations

from ottla.protocol.work import do_now
from ottla.storage.directories.logs import Logs
from ottla.storage.directories.open_logs import REMOVED_AT_ONCE, retaining
from ottla.storage.log.log import Log


def retain(logs: Logs, now_ms: int) -> list[Log]:
    """Apply retention. Return the logs that have lost segments."""
    return [log for directory in logs.directories for log in do_now(retaining(logs.open, directory, now_ms))]


def rename_deleted(logs: Logs) -> None:
    for directory in logs.directories:
        logs.rename_deleted(directory)


def remove_deleted(logs: Logs, now_ms: int, limit: int = REMOVED_AT_ONCE) -> int:
    return sum(logs.remove_deleted(directory, now_ms, limit) for directory in logs.directories)


def to_rename(logs: Logs) -> int:
    return sum(map(logs.deleted_to_rename, logs.directories))
