"""The clusters of `ottla dev` that run now, written down for the other commands of this user.

    ~/.local/state/ottla/running/CLUSTER-ID.json        {"pid": 4711, "admin": {"1": "127.0.0.1:9292"}}

Brokers do not describe their admin listeners to clients. A command learns the cluster's id from its metadata, and finds them here.
The files are a convenience: where they cannot be written, the cluster runs nevertheless, and commands need `--admin` again.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

#: An id comes from the cluster that answers a command, and is the name of a file here.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SUFFIX = ".json"


def folder() -> str:
    state = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state, "ottla", "running")


@contextmanager
def written_down(cluster_id: str, admin: Mapping[int, str]) -> Iterator[None]:
    """Keep the addresses of the admin listeners, by node, where `admin_listeners` finds them inside the block."""
    path = _path(cluster_id)
    with suppress(OSError):
        os.makedirs(folder(), exist_ok=True)
        _remove_ended()
        written = f"{path}.{os.getpid()}"
        with open(written, "w", encoding="utf-8") as file:
            json.dump({"pid": os.getpid(), "admin": admin}, file)
        os.replace(written, path)
    try:
        yield
    finally:
        if _read(path)[0] == os.getpid():
            _remove(path)


def admin_listeners(cluster_id: str | None) -> dict[int, str]:
    """Return the addresses of the admin listeners of a cluster, by node; none if no `ottla dev` of this user runs it."""
    return _read(_path(cluster_id))[1] if cluster_id is not None and _ID.fullmatch(cluster_id) else {}


def _path(cluster_id: str) -> str:
    return os.path.join(folder(), cluster_id + _SUFFIX)


def _read(path: str) -> tuple[int, dict[int, str]]:
    """Return the process that has written a file, and the addresses; nothing of a file that is missing or damaged."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
        return int(data["pid"]), {int(node): str(address) for node, address in data["admin"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return -1, {}


def _remove_ended() -> None:
    """Remove the files of processes that were killed."""
    for name in os.listdir(folder()):
        path = os.path.join(folder(), name)
        if name.endswith(_SUFFIX) and not _is_running(_read(path)[0]):
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
