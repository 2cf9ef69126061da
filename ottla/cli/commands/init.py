"""The command `ottla init DIR --nodes 3`: the files of a cluster on machines elsewhere, and the commands that start it."""

from __future__ import annotations

from functools import partial
from random import SystemRandom
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note
from ottla.local import cluster_files
from ottla.local.cluster_files import PlannedCluster
from ottla.local.secure_files import ADMIN, SecureFiles

app = App(name="init", version_flags=[], help="The files of a cluster on machines elsewhere.")

main = partial(run, app)


@app.default
def init(
    directory: str,
    /,
    *,
    nodes: Annotated[
        str, Parameter(name="--nodes", help="How many (node-1, node-2, ...), or their host names: HOST,HOST,...")
    ] = "3",
    secure: Annotated[bool, Parameter(name="--secure", help="With TLS, logins and ACLs.", negative="")] = False,
    user: Annotated[
        list[str] | None, Parameter(name="--user", help="A user besides admin, with --secure.", negative="")
    ] = None,
    data: Annotated[str, Parameter(name="--data", help="The log directory on each machine.")] = "/var/lib/ottla/data",
    etc: Annotated[str, Parameter(name="--etc", help="Where each machine has its settings and keys.")] = "/etc/ottla",
) -> None:
    """Write a server.properties for each node of a new cluster, and say what is to be done on the machines.

    The first three nodes are brokers and controllers, further ones are brokers.
    """
    if user and not secure:
        raise CommandFailed("--user needs --secure: without logins there are no users", None, USAGE)
    cluster = cluster_files.plan(cluster_files.read_hosts(nodes), SystemRandom(), data, etc.rstrip("/"))
    files = cluster_files.make(directory, cluster, secure=secure, users=user or [])
    for line in _steps(directory, cluster, files):
        print(line)
    if not secure:
        note("Everybody who reaches port 9092 of these nodes may do everything: --secure makes keys and users.")


def _steps(directory: str, cluster: PlannedCluster, files: SecureFiles | None) -> list[str]:
    lines = ["copy to each machine:"]
    keys = "" if files is None else f"; nodes/HOST.pem and ca.pem to {cluster.installed}/"
    for node in cluster.nodes:
        own = keys.replace("HOST", node.name)
        lines.append(
            f"  {node.host}: {directory}/nodes/{node.name}.properties to {cluster.installed}/server.properties{own}"
        )
    controllers = ", ".join(node.host for node in cluster.controllers)
    lines += [
        f"format once on each of {controllers}, as the user that runs the node" + ("" if files is None else f" (users: {directory}/users)") + ":",
        f"  {cluster.format_command(users=files is not None)}",
        "start on each machine (docs/OPERATIONS.md has it as a service):",
        f"  ottla start {cluster.installed}/server.properties",
        "look at it:",
        f"  ottla cluster info -b {cluster.bootstrap}" + ("" if files is None else f" --config {files.client_file(ADMIN)}"),
    ]  # fmt: skip
    return lines
