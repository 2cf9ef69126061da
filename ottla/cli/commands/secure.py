"""The command `ottla secure`: init, issue, renew."""

from __future__ import annotations

import glob
import os
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note
from ottla.client.failures import counted
from ottla.local import secure_files
from ottla.local.secure_files import ADMIN

app = App("secure", "TLS and logins of a cluster.")

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")

main = partial(run, app)


@app.command
def init(
    directory: str,
    /,
    *,
    node: Annotated[
        list[str] | None,
        Parameter(name="--node", help="NAME[=HOST,HOST...]; default node-1 on this machine."),
    ] = None,
    user: Annotated[list[str] | None, Parameter(name="--user", help="A user besides admin.")] = None,
) -> None:
    """Make a development CA, certificates for the nodes, users, and client property files.

    The user admin may do everything. Other users may do what `ottla acl add` allows, and nothing else.
    """
    nodes: dict[str, list[str]] = {}
    for text in node or ["node-1"]:
        name, _, hosts = text.partition("=")
        if name in nodes:
            raise CommandFailed(f"--node {name} is there twice", "each node has a name of its own", USAGE)
        nodes[name] = [*LOCAL_HOSTS, *_hosts(hosts)]
    files = secure_files.make(directory, nodes, user or [])
    note(
        f"{files.directory} has a CA, {counted(len(nodes), 'certificate')} and {counted(len(files.passwords), 'user')}. Keep it private."
    )
    for name in nodes:
        print(f"append {files.directory}/nodes/{name}.properties to the server.properties of {name}")
    scram = " ".join(f"--add-scram '{each.split('password=')[0]}...]'" for each in files.add_scram)
    print(
        f"format with the lines of {files.directory}/users: kafka-storage format ... {scram} (`ottla shims DIR` writes it)"
    )
    print(f"connect with: ottla cluster info --config {files.client_file(ADMIN)}")
    for name in files.passwords:
        if name != ADMIN:
            print(f"{name} may do nothing yet; for a topic and a group:")
            for words in ("write topic:TOPIC", "read topic:TOPIC", "read group:GROUP"):
                print(f"  ottla acl add {name} {words} --config {files.client_file(ADMIN)}")


@app.command
def issue(directory: str, node: str, /) -> None:
    """Make the key and certificate of one more node, NAME=HOST,HOST..., by the CA that `init` left in DIRECTORY."""
    name, _, hosts = node.partition("=")
    store = secure_files.issue(directory, name, [*LOCAL_HOSTS, *(_hosts(hosts) or [name])])
    note(f"{store} is for ssl.keystore.location of {name}")


@app.command
def renew(
    directory: str,
    nodes: Annotated[
        list[str] | None,
        Parameter(help="Names of nodes, or paths of their key stores; default: all in DIRECTORY."),
    ] = None,
    /,
) -> None:
    """Replace keys and certificates before they expire, by the CA that `init` left in DIRECTORY.

    Names, owner, group and mode stay, so that a running node takes the new file by itself. A path renews the file of a node on
    this machine in its place; a name renews DIRECTORY/nodes/NAME.pem, which is then to be copied, and says how.
    """
    stores = [_store(directory, node) for node in nodes or []] or sorted(
        glob.glob(os.path.join(glob.escape(directory), "nodes", "*.pem"))
    )
    if not stores:
        raise CommandFailed(
            f"{directory}/nodes has no certificates", "DIRECTORY is that of `ottla init --secure`", USAGE
        )
    for store in stores:
        if not os.path.exists(store):
            raise CommandFailed(f"there is no {store}", f"`ottla secure issue {directory} NODE` makes one", USAGE)
    for store in stores:
        secure_files.renew(directory, store)
        note(f"{store} is renewed")
        if os.path.dirname(store) == os.path.join(directory, "nodes"):
            name = os.path.basename(store)
            print(f"on its machine, as root: install -o root -g ottla -m 640 {name} /etc/ottla/{name}")


def _store(directory: str, node: str) -> str:
    return node if os.sep in node else os.path.join(directory, "nodes", f"{node}.pem")


def _hosts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
