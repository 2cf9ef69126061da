"""The clusters of `ottla dev` that run now, in files for other commands of the same user.

    ~/.local/state/ottla/running/CLUSTER-ID.json        {"pid": 4711, "admin": {"1": "127.0.0.1:9292"}, "tables": null}

Brokers do not describe their admin listeners to clients. A command learns the cluster's id from its metadata, and finds the
admin listeners here. The location of the tables is here too, for commands that read tables without asking a broker. The files
are a convenience: if they cannot be written, the cluster runs nevertheless, and commands need `--admin`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NamedTuple

#: An id is the name of a file here. It comes from the cluster that a command is connected to, so it is checked.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUFFIX = ".json"


class _WrittenDown(NamedTuple):
    """A cluster that runs: the process of its `ottla dev`, admin listeners by node, and the folder of its tables."""

    pid: int
    admin: dict[int, str]
    tables: str | None


def folder() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "ottla", "running")


@contextmanager
def written_down(cluster_id: str, admin: Mapping[int, str], tables: str | None = None) -> Iterator[None]:
    """Keep the addresses of the admin listeners (by node) and the folder of tables, where other commands find them, inside the
    block.
    """
    path = _path(cluster_id)
    with suppress(OSError):
        os.makedirs(folder(), exist_ok=True)
        _remove_ended()
        written = f"{path}.{os.getpid()}"
        with open(written, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "admin": admin, "tables": tables}, file)
        os.replace(written, path)
    try:
        yield
    finally:
        if _read(path).pid == os.getpid():
            _remove(path)


def admin_listeners(cluster_id: str | None) -> dict[int, str]:
    """Return the addresses of the admin listeners of a cluster, by node; none if no `ottla dev` of this user runs it."""
    return _read(_path(cluster_id)).admin if cluster_id is not None and _ID.fullmatch(cluster_id) else {}


def table_locations() -> list[str]:
    """Return the folder of tables of each `ottla dev` of this user that runs."""
    with suppress(OSError):
        found = (_read(os.path.join(folder(), name)) for name in sorted(os.listdir(folder())) if name.endswith(_SUFFIX))
        return [each.tables for each in found if each.tables is not None and _is_running(each.pid)]
    return []


def _path(cluster_id: str) -> str:
    return os.path.join(folder(), cluster_id + _SUFFIX)


def _read(path: str) -> _WrittenDown:
    """Return the contents of a file. A missing or damaged file gives nothing."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        admin = {int(node): str(address) for node, address in data["admin"].items()}
        tables = data.get("tables")
        return _WrittenDown(int(data["pid"]), admin, None if tables is None else str(tables))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return _WrittenDown(-1, {}, None)


def _remove_ended() -> None:
    """Remove the files of processes that were killed."""
    for name in os.listdir(folder()):
        path = os.path.join(folder(), name)
        if name.endswith(_SUFFIX) and not _is_running(_read(path).pid):
            _remove(path)


def _is_running(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
