"""`ottla dev`: a cluster of child processes in the foreground, for developing against. It prints how to use it, and stops cleanly.

The nodes are `ottla start` processes; this one only starts, watches and ends them. It imports nothing of the server, so that the
nodes' own start is all the start there is. Two pipes tie each node to it:

    ready     the node writes one line once it serves clients
    alive     the node stops when its end is closed: however this process ends, no node outlives it
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from ottla.commands.start import PIPES_VARIABLE, default_properties, overrides

PROGRAM = "ottla dev"
HOST = "127.0.0.1"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
#: Ports of the controllers come this much after the brokers', as far as --base-port says them.
CONTROLLER_PORT_STEP = 100
#: And those of the admin listeners (health, metrics) this much.
ADMIN_PORT_STEP = 200


@dataclass
class Node:
    """One child."""

    id: int
    port: int
    controller_port: int
    admin_port: int
    dir: str
    process: subprocess.Popen[bytes] | None = None
    ready_fd: int = -1
    alive_fd: int = -1
    ready: bool = False
    ended: bool = False

    @property
    def log_file(self) -> str:
        return os.path.join(self.dir, "server.log")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROGRAM, description="Run a cluster of local processes in the foreground.")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="brokers, each a controller too (default 1)")
    parser.add_argument("--base-port", type=int, default=9092, metavar="P", help="port of the first; 0 takes free ones")
    parser.add_argument(
        "--dir", metavar="D", help="keep the data here (default: a temporary directory, removed at the end)"
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON once a client can produce")
    parser.add_argument(
        "--override", action="append", default=[], metavar="KEY=VALUE", help="a property for every node"
    )
    return parser


def free_ports(count: int) -> list[int]:
    """Held open together while they are found, so that they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind((HOST, 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def plan(node_count: int, base_port: int, directory: str) -> list[Node]:
    if base_port:
        ports = [base_port + i for i in range(node_count)]
        controller_ports = [port + CONTROLLER_PORT_STEP for port in ports]
        admin_ports = [port + ADMIN_PORT_STEP for port in ports]
    else:
        found = free_ports(3 * node_count)
        ports, controller_ports, admin_ports = (found[i * node_count : (i + 1) * node_count] for i in range(3))
    return [
        Node(i + 1, ports[i], controller_ports[i], admin_ports[i], os.path.join(directory, f"node-{i + 1}"))
        for i in range(node_count)
    ]


def properties_of(node: Node, nodes: list[Node]) -> dict[str, str]:
    copies = str(min(3, len(nodes)))
    min_isr = str(min(2, len(nodes)))
    return default_properties() | {
        "node.id": str(node.id),
        "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "controller.quorum.voters": ",".join(f"{n.id}@{HOST}:{n.controller_port}" for n in nodes),
        "ottla.admin.listener": f"{HOST}:{node.admin_port}",
        "log.dirs": os.path.join(node.dir, "data"),
        "default.replication.factor": copies,
        "min.insync.replicas": min_isr,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": min_isr,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": min_isr,
        # A developer waits for each rebalance of a group; a production group waits for its members instead (3 s).
        "group.initial.rebalance.delay.ms": "0",
    }


def cluster_id(directory: str) -> str:
    """One for all nodes: of an earlier run in this directory, or a new one."""
    path = os.path.join(directory, "cluster.id")
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        import base64
        import uuid

        made = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        with open(path, "w", encoding="ascii") as file:
            file.write(made)
        return made


def start(node: Node, properties: dict[str, str]) -> None:
    os.makedirs(node.dir, exist_ok=True)
    node.ready_fd, ready_write = os.pipe()
    alive_read, node.alive_fd = os.pipe()
    command = [sys.executable, "-P", "-m", "ottla.commands.start"]
    for key, value in properties.items():
        command += ["--override", f"{key}={value}"]
    environment = dict(os.environ)
    environment[PIPES_VARIABLE] = f"{ready_write},{alive_read}"
    # -P keeps the user's own folders from shadowing ours; ours are then found where this very package was.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, environment.get("PYTHONPATH")]))
    with open(node.log_file, "ab") as output:
        node.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(ready_write, alive_read),
            env=environment,
            # Ctrl-C is sent to the whole foreground group: the nodes are stopped by us, in order.
            start_new_session=True,
        )
    os.close(ready_write)
    os.close(alive_read)


def wait_ready(nodes: list[Node]) -> str | None:
    """None once all serve; otherwise why not."""
    selector = selectors.DefaultSelector()
    for node in nodes:
        selector.register(node.ready_fd, selectors.EVENT_READ, node)
    deadline = time.monotonic() + READY_TIMEOUT_S
    while selector.get_map():
        left = deadline - time.monotonic()
        if left <= 0:
            return f"not all nodes were ready within {READY_TIMEOUT_S:.0f} s"
        for key, _ in selector.select(left):
            node = key.data
            node.ready = bool(os.read(node.ready_fd, 64))
            selector.unregister(node.ready_fd)
            os.close(node.ready_fd)
            node.ready_fd = -1
            if not node.ready:
                return f"node {node.id} did not start\n{tail(node.log_file)}"
    return None


def tail(path: str, lines: int = 15) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-lines:]).rstrip()
    except OSError:
        return ""


def stop(nodes: list[Node]) -> None:
    """All at once: a quorum that is asked one by one has nobody left to hand over to."""
    for node in nodes:
        if node.process is not None and node.process.poll() is None:
            node.process.terminate()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for node in nodes:
        if node.process is not None:
            try:
                node.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                print(f"{PROGRAM}: node {node.id} did not stop within {STOP_TIMEOUT_S:.0f} s: killed", file=sys.stderr)
                node.process.kill()
                node.process.wait()
        for fd in (node.ready_fd, node.alive_fd):
            if fd >= 0:
                os.close(fd)


def bootstrap(nodes: list[Node]) -> str:
    return ",".join(f"{HOST}:{node.port}" for node in nodes)


def tell(nodes: list[Node], as_json: bool, seconds: float) -> None:
    if as_json:
        described = [
            {"id": n.id, "pid": n.process.pid if n.process else -1, "port": n.port, "admin": n.admin_port, "dir": n.dir}
            for n in nodes
        ]
        print(json.dumps({"bootstrap": bootstrap(nodes), "nodes": described}), flush=True)
        return
    print(f"{len(nodes)} node{'s' if len(nodes) > 1 else ''} ready in {seconds:.2f} s\n")
    print(f"  {'id':>3}  {'pid':>7}  {'address':<21}  directory")
    for node in nodes:
        pid = node.process.pid if node.process else -1
        print(f"  {node.id:>3}  {pid:>7}  {HOST + ':' + str(node.port):<21}  {node.dir}")
    servers = bootstrap(nodes)
    print(
        f"""
Next, in another terminal:
  ottla topic create hello -b {servers}
  ottla produce hello -b {servers}
  ottla consume hello -b {servers}
or with any Kafka client: bootstrap.servers={servers}

Ctrl-C stops.""",
        flush=True,
    )


def watch(nodes: list[Node]) -> int:
    """Until a signal, or until the last node has gone: a cluster is there to have single nodes killed."""
    while True:
        for node in nodes:
            if node.process is not None and not node.ended and node.process.poll() is not None:
                node.ended = True
                print(f"{PROGRAM}: node {node.id} has ended ({node.process.returncode})", file=sys.stderr, flush=True)
        if all(node.ended for node in nodes):
            return 1
        signal.sigtimedwait([], 0.2)


class Stopped(Exception):
    """A signal asked for the end."""


def _on_signal(number: int, frame: object) -> None:
    raise Stopped


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.nodes < 1:
        raise SystemExit(f"{PROGRAM}: --nodes must be at least 1")
    signal.signal(signal.SIGINT, _on_signal)
    signal.signal(signal.SIGTERM, _on_signal)
    directory = os.path.abspath(arguments.dir) if arguments.dir else tempfile.mkdtemp(prefix="ottla-dev-")
    os.makedirs(directory, exist_ok=True)
    nodes = plan(arguments.nodes, arguments.base_port, directory)
    began = time.monotonic()
    try:
        common = {"cluster.id": cluster_id(directory)} | overrides(arguments.override)
        for node in nodes:
            start(node, properties_of(node, nodes) | common)
        failure = wait_ready(nodes)
        if failure is not None:
            print(f"{PROGRAM}: {failure}", file=sys.stderr)
            return 1
        tell(nodes, arguments.json, time.monotonic() - began)
        return watch(nodes)
    except Stopped:
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        stop(nodes)
        if not arguments.dir:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
