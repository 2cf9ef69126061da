"""The command `ottla format FILE`: it does for people what `kafka-storage format` does."""

from __future__ import annotations

import argparse
import os
import pwd
import socket
import sys
from contextlib import nullcontext
from functools import partial
from random import SystemRandom
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note
from ottla.client.connection import read_property_file
from ottla.server.config.key import ConfigError
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
from ottla.storage.files import OsFiles

app = App("format", "Format the directories of a node, once, before its first start.")

main = partial(run, app)


@app.default
def format_(
    file: str,
    /,
    *,
    initial_controllers: Annotated[
        str | None,
        Parameter(
            name="--initial-controllers", help="A new cluster: its first controllers, as `ottla init` prints them."
        ),
    ] = None,
    standalone: Annotated[
        bool, Parameter(name="--standalone", help="A new cluster with this controller alone.")
    ] = False,
    no_initial_controllers: Annotated[
        bool,
        Parameter(
            name="--no-initial-controllers",
            help="A node that joins a cluster, or comes back to it with a new disk.",
        ),
    ] = False,
    cluster_id: Annotated[str | None, Parameter(name="--cluster-id", help="Default: cluster.id of FILE.")] = None,
    users: Annotated[
        str | None,
        Parameter(
            name="--users",
            help="A file of the first users of a new cluster, as `ottla init --secure` writes it; - reads standard input.",
        ),
    ] = None,
    feature: Annotated[list[str] | None, Parameter(name="--feature", help="NAME=LEVEL, for a new cluster.")] = None,
    release_version: Annotated[
        str | None,
        Parameter(name="--release-version", help="The metadata.version of a new cluster; default: the newest."),
    ] = None,
    processes: Annotated[
        int | None, Parameter(name="--processes", help="As `ottla start --processes` will have it.")
    ] = None,
) -> None:
    """Format the directories of the node whose server.properties is FILE. Run it as the user that runs the node.

    Each controller of a new cluster is formatted once, with the same --initial-controllers. Directories that are formatted for this
    cluster already stay as they are. A controller that lost its disk comes back with --no-initial-controllers: with the list of the
    first controllers it would vote without what it had acknowledged.
    """
    from ottla.local.storage_format import CannotFormat, directories_of, format_directories
    from ottla.processes.plan import plan

    if sum((initial_controllers is not None, standalone, no_initial_controllers)) > 1:
        raise CommandFailed(
            "--initial-controllers, --standalone and --no-initial-controllers exclude each other", None, USAGE
        )
    properties = read_property_file(file, "it must be the server.properties of a node")
    cluster = cluster_id or properties.get("cluster.id")
    if not cluster:
        raise CommandFailed(f"{file} has no cluster.id", "set it there, or name it: --cluster-id ID", USAGE)
    for directory in directories_of(properties):
        _check_owner(directory, file)
    options = argparse.Namespace(
        config=file,
        cluster_id=cluster,
        ignore_formatted=True,
        add_scram=[] if users is None else _lines_of(users),
        feature=feature or [],
        release_version=release_version,
        standalone=standalone,
        initial_controllers=initial_controllers,
        no_initial_controllers=no_initial_controllers,
    )
    nodes = [properties]
    try:
        if processes is not None:
            nodes = [node.properties for node in plan(properties, processes, socket.gethostname())]
        for node in nodes:
            first, *formatted = format_directories(OsFiles(), node, options, SystemRandom())
            for line in formatted or [first]:
                note(line)
    except (CannotFormat, ConfigError, InconsistentLogDirectory, StorageFailure) as fault:
        raise CommandFailed(str(fault), None, USAGE) from None


def _lines_of(path: str) -> list[str]:
    try:
        # Standard input is the only way to give a file of root's to a command that runs as another user.
        with nullcontext(sys.stdin) if path == "-" else open(path, encoding="utf-8") as file:
            return [line for line in map(str.strip, file) if line]
    except (OSError, UnicodeDecodeError) as failure:
        why = failure.strerror if isinstance(failure, OSError) else "it is no text"
        raise CommandFailed(
            f"{path} cannot be read: {why}", "--users takes the file `users` of `ottla init --secure`", USAGE
        ) from None


def _check_owner(directory: str, file: str) -> None:
    """Reject root in a directory of another user: the files would belong to root, and the node's user could not write them.

    Raises:
        CommandFailed: root formats in a directory of another user.
    """
    path = os.path.abspath(directory)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    owner = os.stat(path).st_uid
    if os.geteuid() != 0 or owner == 0:
        return
    try:
        name = pwd.getpwuid(owner).pw_name
    except KeyError:
        name = str(owner)
    raise CommandFailed(
        f"{path} belongs to {name}, and what root formats there {name} could not write",
        f"run it as that user: runuser -u {name} -- ottla format {file} ...",
        USAGE,
    )
