"""A bundle for each machine, which `ottla init` makes: one tar with the node's files, their modes, and a script that installs them.

    NAME/install            checks everything first, then copies and formats
    NAME/server.properties
    NAME/NAME.pem, ca.pem      with --secure
    NAME/users                 of a controller with --secure: the first users of the cluster, for its format

The files have secrets: in the tar they belong to root, and only root can read them. The script changes their group to that of
the node's user, which can then read but not change them.
"""

from __future__ import annotations

import io
import os
import shlex
import tarfile
from collections.abc import Mapping

from ottla.local.cluster_files import USERS, PlannedCluster, PlannedNode

SCRIPT = "install"
PRIVATE, PROGRAM = 0o600, 0o700

_HEAD = """#!/bin/sh
# Installs the files of NODE, a node of the cluster CLUSTER_ID, on its machine, and formats its directory. Run it as root:
#     sh install             a new cluster
#     sh install --rejoin    this node has lost its disk, and comes back to its cluster
# What differs on this machine is said by the environment: OTTLA_USER, OTTLA_GROUP, and OTTLA, the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
user=${OTTLA_USER:-ottla}
group=$(id -gn "$user" 2>/dev/null || true)
ottla=${OTTLA:-/opt/ottla/bin/ottla}
etc=ETC
"""

_BODY = """
stop() { echo "$0: $*; nothing was installed" >&2; exit 1; }

case "${1:-}" in
    "") rejoin="" ;;
    --rejoin) rejoin=yes ;;
    *) stop "$1 is not known: the only option is --rejoin" ;;
esac
id "$user" >/dev/null 2>&1 ||
    stop "there is no user $user: useradd --system --home-dir /var/lib/ottla --shell /usr/sbin/nologin $user, or set OTTLA_USER"
if [ "$(id -u)" = 0 ]; then
    as_user() { runuser -u "$user" -- "$@"; }
    own() { install -o root -g "$group" "$@"; }
    own_data() { install -o "$user" -g "$group" "$@"; }
elif [ "$(id -un)" = "$user" ]; then
    as_user() { "$@"; }
    own() { install "$@"; }
    own_data() { install "$@"; }
else
    stop "run it as root, or as $user"
fi
why=$(as_user "$ottla" --version 2>&1 >/dev/null) ||
    stop "$user cannot run $ottla ($why): install it where $user may read all of it, or set OTTLA to where it is"
for file in FILES; do
    [ -r "$here/$file" ] || stop "$here/$file cannot be read: the bundle is not complete"
    [ "$file" = users ] || [ ! -e "$etc/$file" ] || cmp -s "$here/$file" "$etc/$file" ||
        stop "$etc/$file is there, and differs from $here/$file: look which one is right, and remove the other"
done

own -d -m 750 "$etc"
for data in DATA; do
    [ -d "$data" ] || own_data -d -m 700 "$data"
done
for file in FILES; do
    [ "$file" = users ] || own -m 640 "$here/$file" "$etc/$file"
done
"""

#: A broker that is no controller is not formatted here: it formats its directory at its first start.
_FORMAT = """if [ -n "$rejoin" ]; then
    as_user "$ottla" format "$etc/server.properties" --no-initial-controllers
else
    as_user "$ottla" format "$etc/server.properties" --initial-controllers CONTROLLERSUSERS
fi
"""

_END = """echo "NODE is installed in $etc. Start it: systemctl enable --now ottla, or: $ottla start $etc/server.properties"
"""


def install_script(cluster: PlannedCluster, node: PlannedNode, files: list[str]) -> str:
    """Return the script that installs `files`, which are in the same folder."""
    users = ' --users - < "$here/users"' if USERS in files else ""
    text = _HEAD + _BODY + (_FORMAT if node.is_controller else "") + _END
    for word, value in (
        ("CONTROLLERSUSERS", shlex.quote(cluster.initial_controllers) + users),
        ("CLUSTER_ID", cluster.cluster_id),
        ("NODE", node.name),
        ("ETC", shlex.quote(cluster.installed)),
        ("DATA", " ".join(shlex.quote(part.strip()) for part in cluster.data.split(","))),
        ("FILES", " ".join(map(shlex.quote, files))),
    ):
        text = text.replace(word, value)
    return text


def bundle(name: str, files: Mapping[str, tuple[str, int]], now_s: float) -> bytes:
    """Return a tar of files, with their texts and modes, in a folder of this name. They belong to root."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode, folder.mtime = tarfile.DIRTYPE, PROGRAM, int(now_s)
        folder.uname = folder.gname = "root"
        tar.addfile(folder)
        for file, (text, mode) in files.items():
            data = text.encode()
            member = tarfile.TarInfo(f"{name}/{file}")
            member.size, member.mode, member.mtime = len(data), mode, int(now_s)
            member.uname = member.gname = "root"
            tar.addfile(member, io.BytesIO(data))
    return made.getvalue()


def files_of(cluster: PlannedCluster, node: PlannedNode, directory: str, *, secure: bool) -> dict[str, tuple[str, int]]:
    """Read the files of a node that `make` of cluster_files has written, and return the files of its bundle. Raises OSError."""
    paths = {"server.properties": os.path.join("nodes", f"{node.name}.properties")}
    if secure:
        paths |= {f"{node.name}.pem": os.path.join("nodes", f"{node.name}.pem"), "ca.pem": "ca.pem"}
        if node.is_controller:
            paths[USERS] = USERS
    found = {}
    for name, path in paths.items():
        with open(os.path.join(directory, path), encoding="utf-8") as file:
            found[name] = (file.read(), PRIVATE)
    return {SCRIPT: (install_script(cluster, node, list(found)), PROGRAM), **found}


def write_bundles(cluster: PlannedCluster, directory: str, *, secure: bool, now_s: float) -> None:
    """Write nodes/NAME.tar of each node, readable only by its owner. Raises OSError."""
    for node in cluster.nodes:
        path = os.path.join(directory, "nodes", f"{node.name}.tar")
        data = bundle(node.name, files_of(cluster, node, directory, secure=secure), now_s)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "wb") as file:
            file.write(data)
