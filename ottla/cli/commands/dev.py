"""The command `ottla dev`: a cluster of child processes in the foreground, for developing against. It prints how to use it, and stops cleanly."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.errors import USAGE, CommandFailed, need_extra
from ottla.local import directory as local_directory
from ottla.local import former_addresses
from ottla.local import nodes as local_nodes
from ottla.local.console import CHANGES, LOOK, PORT_OFFSET, REGISTRY_OFFSET, running_console, running_registry
from ottla.local.nodes import BASE_PORT_MAX, HOST, NODES_MAX, STOP_TIMEOUT_S, LocalNode
from ottla.local.running import written_down
from ottla.processes.children import fork
from ottla.processes.command_parser import CommandParser
from ottla.processes.start import imported, overrides

if TYPE_CHECKING:
    from ottla.local.secure_files import SecureFiles

PROGRAM = "ottla dev"
BASE_PORT_DEFAULT = 9092


def parser() -> CommandParser:
    parser = CommandParser(PROGRAM, "Run a cluster of local processes in the foreground.")
    parser.add_argument(
        "--nodes", type=int, metavar="N", help="Brokers, each a controller too. [default: 3, or what --dir has]"
    )
    parser.add_argument(
        "--base-port",
        type=int,
        default=BASE_PORT_DEFAULT,
        metavar="P",
        help=f"Port of the first; controllers are 100 above, admin listeners 200. 0 takes free ones. [default: {BASE_PORT_DEFAULT}]",
    )
    parser.add_argument(
        "--dir", metavar="D", help="Keep the data here. [default: a temporary directory, removed at the end]"
    )
    parser.add_argument("--secure", action="store_true", help="With TLS, logins by SCRAM-SHA-512, and ACLs.")
    parser.add_argument(
        "--console",
        nargs="?",
        const=LOOK,
        choices=(LOOK, CHANGES),
        help="Serve a web page of the cluster too; `--console changes` lets it change something. Needs the extra `console`.",
    )
    parser.add_argument(
        "--registry", action="store_true", help="Serve a schema registry too, at port 8081. Needs the extra `registry`."
    )
    parser.add_argument("--json", action="store_true", help="Print one line of JSON once a client can produce.")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="A property for every node."
    )
    return parser


def check(arguments: argparse.Namespace) -> None:
    """Check what can be checked before any file is made."""
    if arguments.nodes is not None and not 1 <= arguments.nodes <= NODES_MAX:
        raise CommandFailed(f"--nodes {arguments.nodes} is not between 1 and {NODES_MAX}", exit_code=USAGE)
    if not 0 <= arguments.base_port <= BASE_PORT_MAX:
        raise CommandFailed(
            f"--base-port {arguments.base_port} is not between 1 and {BASE_PORT_MAX}", "0 takes free ports", USAGE
        )
    for service, is_wanted in (("console", arguments.console), ("registry", arguments.registry)):
        if is_wanted:
            need_extra(service, f"--{service}")


def check_ports(nodes: Sequence[LocalNode]) -> None:
    if taken := local_nodes.ports_in_use(nodes):
        several = "ports" if len(taken) > 1 else "port"
        raise CommandFailed(
            f"{several} {', '.join(map(str, taken))} of {HOST} in use: is another cluster running?",
            "stop what listens there, or take others: --base-port 19092, or --base-port 0 for free ones",
        )


# -- What it says --------------------------------------------------------------------------------------------------------


def _say(text: str) -> None:
    """Say something on standard error, which may be a closed pipe or a file on a full disk: the nodes go on all the same."""
    with suppress(OSError):
        print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


def print_ready(nodes: Sequence[LocalNode], node: LocalNode) -> None:
    """Print that one of several nodes serves: a busy machine takes its time."""
    if len(nodes) > 1:
        _say(f"node {node.id} serves")


def print_nodes(
    nodes: Sequence[LocalNode],
    as_json: bool,
    seconds: float,
    secure: SecureFiles | None,
    services: Mapping[str, str],
) -> None:
    """Print the nodes and their addresses. `services` are the URLs of the console and the registry, by their names."""
    servers = local_nodes.bootstrap(nodes)
    if as_json:
        described = [
            {"id": n.id, "pid": n.process.pid if n.process else -1, "port": n.port, "admin": n.admin_port, "dir": n.dir}
            for n in nodes
        ]
        config = {} if secure is None else {"config": secure.client_file(), "librdkafka": secure.librdkafka_file()}
        if secure is not None and "console" in services:
            config["console_token"] = secure.console_token()
        if secure is not None and "registry" in services:
            config["registry_config"] = secure.registry_client()
        print(json.dumps({"bootstrap": servers, "nodes": described} | config | dict(services)), flush=True)
        return
    print(f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} ready in {seconds:.2f} s\n")
    print(f"  {'id':>3}  {'pid':>7}  {'address':<21}  directory")
    for node in nodes:
        pid = node.process.pid if node.process else -1
        print(f"  {node.id:>3}  {pid:>7}  {node.address:<21}  {node.dir}")
    at = "" if nodes[0].port == BASE_PORT_DEFAULT else f" -b {nodes[0].address}"
    if secure is not None:
        at += f" --config {secure.client_file()}"
    ottla = _command()
    lines = [f"\nIn a browser: {services['console']}"] if "console" in services else []
    if secure is not None and "console" in services:
        lines.append(f"  any user, with the password in {secure.console_token()}")
    lines += [f"\nSchema registry: {services['registry']}"] if "registry" in services else []
    if secure is not None and "registry" in services:
        lines.append(f"  with the login in {secure.registry_client()} (--registry-config)")
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


def _command() -> str:
    """Return the command that starts `ottla`: in a clone it is in a virtual environment that is not on the PATH."""
    script = os.path.abspath(sys.argv[0])
    if os.path.basename(script) != "ottla" or not os.access(script, os.X_OK):
        return "ottla"
    return "ottla" if shutil.which("ottla") == script else os.path.relpath(script)


def watch(nodes: Sequence[LocalNode]) -> int:
    """Wait for a signal or the end of the last node. Single nodes may end, because users kill them to try a failover."""
    while True:
        for node in nodes:
            if node.process is not None and not node.ended and node.process.poll() is not None:
                node.ended = True
                _say(f"node {node.id} has ended ({node.process.returncode})")
        if all(node.ended for node in nodes):
            return 1
        signal.sigtimedwait([], 0.2)


# -- Running -------------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """A signal asked for the end."""


def _on_signal(number: int, frame: object) -> None:
    raise Stopped


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    check(arguments)
    common = overrides(arguments.override)
    directory = os.path.abspath(arguments.dir) if arguments.dir else tempfile.mkdtemp(prefix="ottla-dev-")
    try:
        return run(arguments, directory, common)
    finally:
        if not arguments.dir:
            shutil.rmtree(directory, ignore_errors=True)


def secured(
    nodes: Sequence[LocalNode], directory: str, cluster_id: str, properties: dict[int, dict[str, str]]
) -> SecureFiles:
    """Add the security to the properties of each node."""
    from ottla.local.security import secure  # keys, certificates and the records of users: only for this

    return secure(nodes, directory, cluster_id, properties)


def run(arguments: argparse.Namespace, directory: str, common: dict[str, str]) -> int:
    kept = local_directory.look(directory, arguments.nodes)
    nodes = local_nodes.plan(kept.nodes, arguments.base_port, directory)
    check_ports(nodes)
    local_directory.keep(directory, kept)
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)
    began = time.monotonic()
    try:
        ways = former_addresses.detours(directory, local_nodes.addresses(nodes))
        own = {"cluster.id": kept.cluster_id} | local_nodes.detours_property(ways)
        properties = {node.id: local_nodes.properties_of(node, nodes) | own | common for node in nodes}
        admin = {node: each["ottla.admin.listener"] for node, each in properties.items()}
        files = secured(nodes, directory, kept.cluster_id, properties) if arguments.secure else None
        for node in nodes:
            local_nodes.start(node, properties[node.id], partial(fork, imported))
        failure = local_nodes.wait_ready(nodes, partial(print_ready, nodes))
        if failure is not None:
            raise CommandFailed(failure)
        with ExitStack() as stack:
            stack.enter_context(written_down(kept.cluster_id, admin))
            services: dict[str, str] = {}
            if arguments.registry:
                port = arguments.base_port and max(0, arguments.base_port + REGISTRY_OFFSET)
                services["registry"] = stack.enter_context(running_registry(nodes, port, files))
            if arguments.console:
                port = arguments.base_port and arguments.base_port + PORT_OFFSET
                console = running_console(nodes, port, arguments.console, files, services.get("registry"))
                services["console"] = stack.enter_context(console)
            print_nodes(nodes, arguments.json, time.monotonic() - began, files, services)
            return watch(nodes)
    except Stopped:
        _say("stopping")
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for node in local_nodes.stop(nodes):
            _say(f"node {node.id} did not stop within {STOP_TIMEOUT_S:.0f} s: killed")


if __name__ == "__main__":
    sys.exit(main())
