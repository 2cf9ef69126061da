"""The command `ottla init DIR --nodes 3`: it writes the files of a cluster on other machines, and prints the commands that
start it.
"""

from __future__ import annotations

import time
from functools import partial
from random import SystemRandom
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note
from ottla.local import cluster_files
from ottla.local.bundles import write_bundles
from ottla.local.cluster_files import PlannedCluster
from ottla.local.secure_files import ADMIN, SecureFiles

app = App("init", "The files of a cluster on machines elsewhere.")

main = partial(run, app)


@app.default
def init(
    directory: str,
    /,
    *,
    nodes: Annotated[
        str, Parameter(name="--nodes", help="How many (node-1, node-2, ...), or their host names: HOST,HOST,...")
    ] = "3",
    secure: Annotated[bool, Parameter(name="--secure", help="With TLS, logins and ACLs.")] = False,
    user: Annotated[list[str] | None, Parameter(name="--user", help="A user besides admin, with --secure.")] = None,
    data: Annotated[str, Parameter(name="--data", help="The log directory on each machine.")] = "/var/lib/ottla/data",
    etc: Annotated[str, Parameter(name="--etc", help="Where each machine has its settings and keys.")] = "/etc/ottla",
) -> None:
    """Write a server.properties and a bundle for each node of a new cluster, and say what is to be done on the machines.

    The first three nodes are brokers and controllers, further ones are brokers.
    """
    if user and not secure:
        raise CommandFailed("--user needs --secure: without logins there are no users", None, USAGE)
    cluster = cluster_files.plan(cluster_files.read_hosts(nodes), SystemRandom(), data, etc.rstrip("/"))
    files = cluster_files.make(directory, cluster, secure=secure, users=user or [])
    try:
        write_bundles(cluster, directory, secure=secure, now_s=time.time())
    except OSError as failure:
        raise CommandFailed(f"{failure.filename} cannot be written: {failure.strerror}") from None
    for line in _steps(directory, cluster, files):
        print(line)
    if not secure:
        note("Everybody who reaches port 9092 of these nodes may do everything: --secure makes keys and users.")


def _steps(directory: str, cluster: PlannedCluster, files: SecureFiles | None) -> list[str]:
    secure = files is not None
    lines = [
        "copy the bundle of each machine to it, and install it there as root (after the steps of docs/OPERATIONS.md, Install):"
    ]
    lines += [f"  {node.host}: {directory}/nodes/{node.name}.tar" for node in cluster.nodes]
    lines += [
        "  tar -xf NAME.tar && sh NAME/install",
        f"or do by hand what it does: nodes/NAME.properties is {cluster.installed}/server.properties"
        + (", nodes/NAME.pem and ca.pem are beside it, all of root and of the node's group, mode 640" if secure else "") + "; format once on each of "
        + ", ".join(node.host for node in cluster.controllers) + ", as the user that runs the node:",
        f"  {cluster.format_command(users=secure)}",
        "start on each machine (docs/OPERATIONS.md has it as a service):",
        f"  ottla start {cluster.installed}/server.properties",
        "look at it:",
        f"  ottla cluster info -b {cluster.bootstrap}" + ("" if files is None else f" --config {files.client_file(ADMIN)}"),
    ]  # fmt: skip
    return lines
