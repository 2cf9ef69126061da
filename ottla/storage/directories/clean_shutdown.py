"""The mark of a clean stop in a log directory (`.kafka_cleanshutdown`, KIP-966): with it, opening reads the ends of the logs only."""

from __future__ import annotations

import json

from ottla.storage.files import Files

FILE = ".kafka_cleanshutdown"


def take(files: Files, directory: str) -> tuple[bool, int]:
    """Returns whether the last stop was clean, and the broker epoch then. Removes the mark, so that a crash while opening is noticed."""
    path = f"{directory}/{FILE}"
    data = files.read(path)
    if data is None:
        return False, -1
    files.remove(path)
    files.sync_dir(directory)
    try:
        return True, int(json.loads(data or b"{}").get("brokerEpoch", -1))
    except (ValueError, AttributeError, TypeError):
        return True, -1


def write(files: Files, directory: str, broker_epoch: int) -> None:
    """Writes the mark, after everything in the directory is synced."""
    mark = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    files.write_atomic(f"{directory}/{FILE}", mark.encode())
