"""The command `ottla dev`: a cluster of child processes in the foreground, for developers.

It prints how to use it, and stops cleanly.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.dev_texts import BASE_PORT_DEFAULT, PROGRAM, print_nodes, print_ready, say
from ottla.cli.errors import USAGE, CommandFailed, need_extra
from ottla.client.failures import plural
from ottla.local import directory as local_directory
from ottla.local import former_addresses
from ottla.local import nodes as local_nodes
from ottla.local.console import CHANGES, LOOK, PORT_OFFSET, running_beside
from ottla.local.nodes import BASE_PORT_MAX, HOST, NODES_MAX, STOP_TIMEOUT_S, LocalNode
from ottla.local.running import written_down
from ottla.processes.children import fork
from ottla.processes.command_parser import CommandParser
from ottla.processes.start import add_emulate, imported, override

if TYPE_CHECKING:
    from ottla.local.secure_files import SecureFiles

#: The control port of faults is the one after the console's: 9491.
FAULTS_OFFSET = PORT_OFFSET + 1
PORT_MAX = 65_535
ADMIN_LISTENER, TABLE_LOCATION = "ottla.admin.listener", "ottla.table.location"
TIER_LOCATION = "ottla.tier.location"
#: `--faults` without a port.
BESIDE = -1


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
    parser.add_argument(
        "--tables",
        nargs="?",
        const="",
        metavar="T",
        help="Serve topics that are tables by Iceberg's REST catalog API too, at port 8181. They lie in this folder, by default in `tables` of --dir. "
        "Needs the extra `tables`.",
    )
    parser.add_argument(
        "--tiers",
        nargs="?",
        const="",
        metavar="T",
        help="Let topics with remote.storage.enable=true keep their old segments in this folder, by default in `tiers` of --dir, or at an address such "
        "as s3://BUCKET/PREFIX, which needs the extra `tables`.",
    )
    parser.add_argument(
        "--faults",
        nargs="?",
        type=int,
        const=BESIDE,
        metavar="PORT",
        help="Serve all faults of tests over HTTP to this machine, at port 9491 or this one: kills, cuts, time, full disks, scripted "
        "errors (docs/TESTING.md). Needs the extra `testing`.",
    )
    add_emulate(parser)
    parser.add_argument("--json", action="store_true", help="Print one line of JSON once a client can produce.")
    parser.add_argument(
        "--override", type=override, action="append", default=[], metavar="KEY=VALUE", help="A property for every node."
    )
    return parser


def check(arguments: argparse.Namespace) -> None:
    """Check the options before any file is written."""
    if arguments.nodes is not None and not 1 <= arguments.nodes <= NODES_MAX:
        raise CommandFailed(f"--nodes {arguments.nodes} is not between 1 and {NODES_MAX}", exit_code=USAGE)
    if not 0 <= arguments.base_port <= BASE_PORT_MAX:
        raise CommandFailed(
            f"--base-port {arguments.base_port} is not between 1 and {BASE_PORT_MAX}", "0 takes free ports", USAGE
        )
    if arguments.faults is not None and not BESIDE <= arguments.faults <= PORT_MAX:
        raise CommandFailed(f"--faults {arguments.faults} is no port", "0 takes a free one", USAGE)
    is_with_faults = arguments.faults is not None
    for extra, option, is_wanted in (
        ("console", "--console", arguments.console),
        ("registry", "--registry", arguments.registry),
        ("tables", "--tables", arguments.tables is not None),
        ("tables", "--tiers with an address", "://" in (arguments.tiers or "")),
        ("testing", "--faults", is_with_faults),
    ):
        if is_wanted:
            need_extra(extra, option)


def check_ports(nodes: Sequence[LocalNode]) -> None:
    if taken := local_nodes.ports_in_use(nodes):
        raise CommandFailed(
            f"{plural(len(taken), 'port')} {', '.join(map(str, taken))} of {HOST} in use: is another cluster running?",
            "stop what listens there, or take others: --base-port 19092, or --base-port 0 for free ones",
        )


def watch(nodes: Sequence[LocalNode]) -> int:
    """Wait for a signal or the end of the last node. A single node may end: users kill nodes to try a failover."""
    while True:
        look(nodes)
        if all(node.ended for node in nodes):
            return 1
        signal.sigtimedwait([], 0.2)


def look(nodes: Sequence[LocalNode]) -> None:
    """Print which nodes have ended since the last call."""
    for node in nodes:
        if node.process is None:
            continue
        if (has_ended := node.process.poll() is not None) and not node.ended:
            say(f"node {node.id} has ended ({node.process.returncode})")
        node.ended = has_ended


# -- Running -------------------------------------------------------------------------------------------------------------


class Stopped(Exception):
    """A signal has asked for the end."""


def _on_signal(number: int, frame: object) -> None:
    raise Stopped


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    check(arguments)
    common = dict([*arguments.override, *(arguments.emulate or ())])
    if arguments.tables:
        common[TABLE_LOCATION] = os.path.abspath(arguments.tables)
    directory = os.path.abspath(arguments.dir) if arguments.dir else tempfile.mkdtemp(prefix="ottla-dev-")
    try:
        return run(arguments, directory, common)
    finally:
        if not arguments.dir:
            shutil.rmtree(directory, ignore_errors=True)


def tier_location(named: str, directory: str) -> str:
    """Return where remote segments are stored: the address as given, or a folder."""
    return named if "://" in named else os.path.abspath(named or os.path.join(directory, local_directory.TIERS))


def secured(
    nodes: Sequence[LocalNode], directory: str, cluster_id: str, properties: dict[int, dict[str, str]]
) -> SecureFiles:
    """Add the security to the properties of each node."""
    from ottla.local.security import secure  # imported late: keys, certificates and records of users are only for this

    return secure(nodes, directory, cluster_id, properties)


class Running(NamedTuple):
    """A cluster that runs. `wait` waits for its end, and returns the exit code."""

    nodes: Sequence[LocalNode]
    files: SecureFiles | None
    wait: Callable[[], int]
    services: dict[str, str]


def run(arguments: argparse.Namespace, directory: str, common: dict[str, str]) -> int:
    kept = local_directory.look(directory, arguments.nodes)
    nodes = local_nodes.plan(kept.nodes, arguments.base_port, directory)
    if arguments.tiers is not None:
        common = local_nodes.tier_properties(tier_location(arguments.tiers, directory), kept.nodes) | common
    check_ports(nodes)
    local_directory.keep(directory, kept)
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            if arguments.faults is None:
                started = _running(nodes, kept, directory, common, arguments.secure)
            else:
                started = _running_with_faults(arguments, kept.nodes, directory, common)
            up = stack.enter_context(started)
            listeners = {node.id: common.get(ADMIN_LISTENER, f"{HOST}:{node.admin_port}") for node in up.nodes}
            tables = common.get(TABLE_LOCATION) or os.path.join(directory, local_nodes.TABLES)
            stack.enter_context(written_down(kept.cluster_id, listeners, tables))
            services = up.services | running_beside(
                stack,
                up,
                arguments.base_port,
                console=arguments.console,
                registry=arguments.registry,
                tables=None if arguments.tables is None else tables,
            )
            if TIER_LOCATION in common:
                services["tiers_at"] = common[TIER_LOCATION]
            print_nodes(up.nodes, arguments.json, time.monotonic() - began, up.files, services)
            return up.wait()
    except Stopped:
        say("stopping")
        return 0


@contextmanager
def _running(
    nodes: Sequence[LocalNode],
    kept: local_directory.KeptCluster,
    directory: str,
    common: dict[str, str],
    is_secure: bool,
) -> Iterator[Running]:
    try:
        ways = former_addresses.detours(directory, local_nodes.addresses(nodes))
        own = {"cluster.id": kept.cluster_id} | local_nodes.detours_property(ways)
        properties = {node.id: local_nodes.properties_of(node, nodes) | own | common for node in nodes}
        files = secured(nodes, directory, kept.cluster_id, properties) if is_secure else None
        for node in nodes:
            local_nodes.start(node, properties[node.id], partial(fork, imported))
        failure = local_nodes.wait_ready(nodes, partial(print_ready, nodes))
        if failure is not None:
            raise CommandFailed(failure)
        yield Running(nodes, files, partial(watch, nodes), {})
    finally:
        _ignore_signals()
        for node in local_nodes.stop(nodes):
            say(f"node {node.id} did not stop within {STOP_TIMEOUT_S:.0f} s: killed")


@contextmanager
def _running_with_faults(
    arguments: argparse.Namespace, count: int, directory: str, common: dict[str, str]
) -> Iterator[Running]:
    """Run nodes that can be spoiled, as tests in Python have them.

    Clients reach them through proxies, whose connections can be cut.
    """
    from ottla.testing.cluster import Cluster  # imported late: only --faults needs it
    from ottla.testing.control_port import listen, serve

    port = (
        arguments.faults if arguments.faults != BESIDE else arguments.base_port and arguments.base_port + FAULTS_OFFSET
    )
    try:
        listening = listen(port)
    except OSError as failure:
        raise CommandFailed(
            f"port {port} of {HOST}: {failure.strerror}", "name another: --faults PORT, or 0 for a free one"
        ) from None
    with listening:
        cluster = Cluster(
            count,
            directory=directory,
            temporary=False,
            base_port=arguments.base_port,
            cuttable=True,
            secure=arguments.secure,
            per_node=dict.fromkeys(range(1, count + 1), common),
        )
        try:
            try:
                cluster.start(*cluster.nodes)
            except RuntimeError as failure:
                raise CommandFailed(str(failure)) from None
            files, nodes = cluster.secure_files, list(cluster.nodes.values())

            def wait() -> int:
                token = None if files is None else _first_line(files.console_token())
                serve(cluster, listening, token, partial(look, nodes))
                return 0

            yield Running(nodes, files, wait, {"faults": f"http://{HOST}:{listening.getsockname()[1]}"})
        finally:
            _ignore_signals()
            cluster.close(kill=False)


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline().strip()


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
