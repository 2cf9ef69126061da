"""The paths of a local cluster's snapshots, and the description of each (`About`).

DIR/cluster.properties, DIR/node-1/data, ...      the cluster (`ottla dev --dir DIR`)
DIR/snapshots/NAME/node-1/data, ...               the log directory of each node
DIR/snapshots/NAME/contents                       a line for each file: its size and its path
DIR/snapshots/NAME/snapshot.json                  written last: a snapshot without it is not one
DIR/snapshots/.NAME.part                          a snapshot that is being made, or was left by a killed process
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass

from ottla.client.failures import Failure, Kind
from ottla.local.directory import KeptCluster

FOLDER = "snapshots"
ABOUT, CONTENTS = "snapshot.json", "contents"
PART = ".part"
VERSION = 1
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class About:
    """The contents of the file that describes a snapshot. Sizes are in bytes. `fence_ms` is how long the nodes were stopped."""

    name: str
    directory: str
    cluster_id: str
    nodes: int
    taken_ms: int
    fence_ms: float
    files: int
    linked_bytes: int
    copied_bytes: int
    #: The addresses of the nodes (ottla/local/former_addresses.py): a fork must not connect to them.
    addresses: dict[str, list[str]]
    version: int = VERSION


class DamagedSnapshot(Failure):
    """A snapshot whose description cannot be read any more. It can still be removed."""


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Failure(
            f"{name!r} cannot be the name of a snapshot", "letters, digits, '.', '_' and '-', 100 at most", Kind.WRONG
        )


def path_of(directory: str, name: str) -> str:
    return os.path.join(directory, FOLDER, name)


def part_of(directory: str, name: str) -> str:
    return os.path.join(directory, FOLDER, f".{name}{PART}")


def parts(directory: str) -> list[str]:
    """Return the paths of incomplete snapshots."""
    folder = os.path.join(directory, FOLDER)
    return [os.path.join(folder, name) for name in os.listdir(folder) if name.startswith(".") and name.endswith(PART)]


def names(directory: str) -> list[str]:
    """Return the names of the complete snapshots of a cluster, without opening them."""
    folder = os.path.join(directory, FOLDER)
    if not os.path.isdir(folder):
        return []
    return sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name, ABOUT)))


def read(path: str) -> About:
    """Return the description of a snapshot.

    Raises:
        DamagedSnapshot: the description is damaged.
        Failure: there is none, or a newer version of Ottla has made the snapshot.
    """
    file = os.path.join(path, ABOUT)
    try:
        with open(file, encoding="utf-8") as text:
            found = json.load(text)
        version = found["version"]
        if version == VERSION:
            return About(**found)
    except FileNotFoundError:
        raise _missing(path) from None
    except OSError as failure:
        raise Failure(f"{file} cannot be read: {failure.strerror}") from None
    except (ValueError, TypeError, KeyError):
        raise DamagedSnapshot(f"the snapshot {path} is damaged: {ABOUT} is not what was written") from None
    raise Failure(f"the snapshot {path} is of version {version}, and this Ottla reads {VERSION}")


def _missing(path: str) -> Failure:
    folder, name = os.path.split(path)
    known = names(os.path.dirname(folder))
    hint = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if known else "`ottla snapshot create NAME`"
    return Failure(f"there is no snapshot {name} in {folder}", hint)


def finish(
    path: str,
    name: str,
    directory: str,
    kept: KeptCluster,
    taken_ms: int,
    fence_s: float,
    addresses: dict[str, list[str]],
) -> About:
    """Make the snapshot complete, once everything else in it is on the disk."""
    found = [(file, os.stat(os.path.join(path, file))) for file in sorted(_files(path))]
    shared = [stat.st_size for _, stat in found if stat.st_nlink > 1]
    own = [stat.st_size for _, stat in found if stat.st_nlink == 1]
    about = About(
        name=name,
        directory=directory,
        cluster_id=kept.cluster_id,
        nodes=kept.nodes,
        taken_ms=taken_ms,
        fence_ms=round(fence_s * 1000, 1),
        files=len(found),
        linked_bytes=sum(shared),
        copied_bytes=sum(own),
        addresses=addresses,
    )
    _write(os.path.join(path, CONTENTS), "".join(f"{stat.st_size} {file}\n" for file, stat in found))
    _write(os.path.join(path, ABOUT), json.dumps(asdict(about), indent=1))
    return about


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def check_contents(path: str) -> None:
    """Raise Failure unless each file of the snapshot exists with its size."""
    try:
        with open(os.path.join(path, CONTENTS), encoding="utf-8") as contents:
            wanted = {name: int(size) for size, _, name in (line.rstrip("\n").partition(" ") for line in contents)}
    except (OSError, ValueError) as failure:
        raise Failure(f"the snapshot {path} is damaged: {CONTENTS}: {failure}") from None
    there = {name: os.stat(os.path.join(path, name)).st_size for name in _files(path)}
    for name, size in wanted.items():
        if there.get(name) != size:
            what = "is missing" if name not in there else f"has {there[name]} bytes instead of {size}"
            raise Failure(
                f"the snapshot {path} is damaged: {name} {what}",
                "nothing was changed; take another snapshot, or use an older one",
            )


def remove(path: str) -> None:
    """Remove a snapshot. Its description goes first, so that a half-removed snapshot does not count as one."""
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(path, ABOUT))
    shutil.rmtree(path)


def _files(path: str) -> Iterator[str]:
    """Return the paths in a snapshot of all files that were copied or linked."""
    for folder, _, found in os.walk(path):
        for name in found:
            relative = os.path.relpath(os.path.join(folder, name), path)
            if relative not in (CONTENTS, ABOUT):
                yield relative
