"""The output of `ottla dev`: its nodes and their addresses, and the commands to type next."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.client.failures import counted
from ottla.local import nodes as local_nodes
from ottla.local.nodes import LocalNode

if TYPE_CHECKING:
    from ottla.local.secure_files import SecureFiles

PROGRAM = "ottla dev"
BASE_PORT_DEFAULT = 9092


def say(text: str) -> None:
    """Print a text to standard error. If that is a closed pipe or a file on a full disk, the nodes go on all the same."""
    with suppress(OSError):
        print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def print_ready(nodes: Sequence[LocalNode], node: LocalNode) -> None:
    """Print that one of several nodes serves, because on a busy machine the start takes some time."""
    if len(nodes) > 1:
        say(f"node {node.id} serves")


def print_nodes(
    nodes: Sequence[LocalNode],
    as_json: bool,
    seconds: float,
    secure: SecureFiles | None,
    services: Mapping[str, str],
) -> None:
    """Print the nodes and their addresses. `services` are the URLs of the console, the registry and the catalog, and the places of tables and
    remote segments, by their names."""
    servers = local_nodes.bootstrap(nodes)
    if as_json:
        described = [
            {
                "id": n.id,
                "pid": n.process.pid if n.process else -1,
                "port": n.client_port,
                "admin": n.admin_port,
                "dir": n.dir,
            }
            for n in nodes
        ]
        config = {} if secure is None else {"config": secure.client_file(), "librdkafka": secure.librdkafka_file()}
        if secure is not None and "console" in services:
            config["console_token"] = secure.console_token()
        if secure is not None and "faults" in services:
            config["faults_token"] = secure.console_token()
        if secure is not None and "registry" in services:
            config["registry_config"] = secure.registry_client()
        print(json.dumps({"bootstrap": servers, "nodes": described} | config | dict(services)), flush=True)
        return
    print(f"{counted(len(nodes), 'node')} ready in {seconds:.2f} s\n")
    print(f"  {'id':>3}  {'pid':>7}  {'address':<21}  directory")
    for node in nodes:
        pid = node.process.pid if node.process else -1
        print(f"  {node.id:>3}  {pid:>7}  {node.address:<21}  {node.dir}")
    at = "" if nodes[0].client_port == BASE_PORT_DEFAULT else f" -b {nodes[0].address}"
    if secure is not None:
        at += f" --config {secure.client_file()}"
    ottla = command()
    lines = [f"\nIn a browser: {services['console']}"] if "console" in services else []
    if secure is not None and "console" in services:
        lines.append(f"  any user, with the password in {secure.console_token()}")
    lines += [f"\nSchema registry: {services['registry']}"] if "registry" in services else []
    if secure is not None and "registry" in services:
        lines.append(f"  with the login in {secure.registry_client()} (--registry-config)")
    if "tables" in services:
        lines.append(f"\nTables (Iceberg's REST catalog): {services['tables']}")
        lines.append(f"  they lie in {services['tables_at']}; `{ottla} sql` asks them")
    if "tiers_at" in services:
        lines.append(f"\nRemote segments lie in {services['tiers_at']}: of topics with remote.storage.enable=true")
        lines.append(f"  {ottla} topic create old{at} --set remote.storage.enable=true")
        lines.append(f"  {ottla} tier status{at}")
    if "faults" in services:
        lines.append(f"\nFaults: {services['faults']} lists the verbs, POST runs them")
        if secure is not None:
            lines.append(f"  with Authorization: Bearer and the token in {secure.console_token()}")
    lines += [
        "\nNext, in another terminal:",
        f"  {ottla} topic create hello{at}",
        f"  {ottla} produce hello{at}",
        f"  {ottla} consume hello{at}",
        f"or with any Kafka client: bootstrap.servers={servers}",
    ]
    if secure is not None:
        # The password itself is not printed, because terminals and the logs of CI keep what is printed.
        lines.append(
            f"with the login in {secure.librdkafka_file()}, {secure.client_file()} (Java) or the .py beside them"
        )
    if len(nodes) > 2:
        victim = nodes[-1]
        pid = victim.process.pid if victim.process else -1
        lines.append(f"Any one node can die and nothing acknowledged is lost: kill -9 {pid}")
    print("\n".join([*lines, "\nCtrl-C stops."]), flush=True)


def command() -> str:
    """Return the command that starts `ottla`. In a clone it is in a virtual environment that is not on the PATH."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) != "ottla" or not os.access(script, os.X_OK):
        return "ottla"
    return "ottla" if shutil.which("ottla") == script else os.path.relpath(script)
