"""The console, the schema registry and the catalog of tables beside a local cluster: separate processes, which end with the
cluster.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

from ottla.client.failures import Failure
from ottla.local.nodes import HOST, LocalNode, bootstrap

if TYPE_CHECKING:
    from ottla.local.secure_files import SecureFiles

#: The console's port is this much above the first node's: 9490 beside 9092.
PORT_OFFSET = 398
#: The registry's port has the same distance from the first node's as Confluent's 8081 has from 9092.
REGISTRY_OFFSET = 8081 - 9092
#: The catalog's port has the same distance from the first node's as Iceberg's usual 8181 has from 9092.
TABLES_OFFSET = 8181 - 9092
LOOK, CHANGES = "look", "changes"
STOP_TIMEOUT_S = 5.0


class LocalCluster(Protocol):
    """The running nodes, and the files of their security."""

    @property
    def nodes(self) -> Sequence[LocalNode]: ...

    @property
    def files(self) -> SecureFiles | None: ...


def running_beside(
    stack: ExitStack, up: LocalCluster, base_port: int, *, console: str | None, registry: bool, tables: str | None
) -> dict[str, str]:
    """Run the requested services beside the nodes until the stack ends; return their URLs by name. Port 0 means free ports.

    Raises:
        Failure: as `running_console`.
    """
    services = {}
    nodes, files = up.nodes, up.files
    if registry:
        port = base_port and max(0, base_port + REGISTRY_OFFSET)
        services["registry"] = stack.enter_context(running_registry(nodes, port, files))
    if tables is not None:
        port = base_port and max(0, base_port + TABLES_OFFSET)
        services["tables"] = stack.enter_context(running_catalog(tables, port, files))
        services["tables_at"] = tables
    if console:
        port = base_port and base_port + PORT_OFFSET
        shown = running_console(nodes, port, console, files, services.get("registry"), tables)
        services["console"] = stack.enter_context(shown)
    return services


@contextmanager
def running_console(
    nodes: Sequence[LocalNode],
    port: int,
    mode: str,
    files: SecureFiles | None,
    registry: str | None = None,
    tables: str | None = None,
) -> Iterator[str]:
    """Run a console of these nodes.

    Yield its URL once a browser can connect. It acts as the administrator of `files`, for users with its token.

    It shows the schemas of the `registry`, and the tables at a location.

    Raises:
        Failure: its packages are not installed, or its port is in use. It has written why to standard error.
    """
    command = [sys.executable, "-m", "ottla", "console", "--bootstrap", bootstrap(nodes)]
    command += ["--listen", f"{HOST}:{port}"]
    for node in nodes:
        command += ["--admin", f"{node.id}@{HOST}:{node.admin_port}"]
    if mode == CHANGES:
        command.append("--allow-changes")
    if registry is not None:
        command += ["--registry", registry]
        if files is not None:
            command += ["--registry-config", files.registry_client()]
    if tables is not None:
        command += ["--tables", tables]
    if files is not None:
        # Every user and process of the machine can reach its port.
        command += ["--config", files.client_file(), "--token-file", files.console_token()]
    with _running(command, "console") as url:
        yield url


@contextmanager
def running_registry(nodes: Sequence[LocalNode], port: int, files: SecureFiles | None) -> Iterator[str]:
    """Run a schema registry on these nodes. Yield its URL once it can write. With `files` it has the logins of the cluster.

    Raises:
        Failure: as `running_console`.
    """
    command = [sys.executable, "-m", "ottla", "registry", "--bootstrap", bootstrap(nodes), "--listen", f"{HOST}:{port}"]
    if files is not None:
        command += ["--config", files.client_file(), "--users", files.registry_users()]
    with _running(command, "registry") as line:
        yield line.split()[-1]


@contextmanager
def running_catalog(location: str, port: int, files: SecureFiles | None) -> Iterator[str]:
    """Run a catalog of the tables at a location.

    Yield its URL once an engine can connect. With `files` it has the logins of the cluster.

    Raises:
        Failure: as `running_console`.
    """
    command = [sys.executable, "-m", "ottla", "table", "serve", "--at", location, "--listen", f"{HOST}:{port}"]
    if files is not None:
        command += ["--users", files.registry_users()]
    with _running(command, "tables") as line:
        yield line.split()[-1]


@contextmanager
def _running(command: Sequence[str], name: str) -> Iterator[str]:
    """Run a process that writes a line once it serves. Yield the line."""
    # The process has its own session: Ctrl-C at the terminal is for `ottla dev`, which stops the process.
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        if not line:
            raise Failure(f"the {name} has not started", f"without --{name} the cluster runs as before")
        yield line
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
