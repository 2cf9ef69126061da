"""The command `ottla container`, the entry point of the image. From environment variables it starts a node, or it prints one
line that says why it cannot.

run         configure and start; arguments VAR=value count as environment
configure   write the properties to a file, for images whose users put a step between this and the next
launch      start the node that was configured
registry    start a schema registry, by the variables of cp-schema-registry's image
"""

from __future__ import annotations

import argparse
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from random import SystemRandom
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.errors import FAILED
from ottla.processes.command_parser import CommandParser
from ottla.processes.plan import process_count

if TYPE_CHECKING:
    from ottla.container.first_start import FirstStart

PROGRAM = "ottla container"
#: The time between two attempts to reach the brokers, which the registry waits for.
BROKERS_AGAIN_S = 0.5
#: This variable is the number of brokers in this container, each a process, as with `ottla start --processes`.
PROCESSES = "OTTLA_PROCESSES"


def parser() -> CommandParser:
    parser = CommandParser(PROGRAM, "Entry point of the container image.")
    parser.add_argument(
        "step",
        nargs="?",
        default="run",
        choices=("run", "configure", "launch", "registry"),
        metavar="STEP",
        help="run (default), configure, launch or registry.",
    )
    parser.add_argument(
        "variables",
        nargs="*",
        metavar="VAR=VALUE",
        help="As if it were set in the environment.",
    )
    parser.add_argument(
        "--dialect", choices=("apache", "confluent", "bitnami"), help="Do not guess whose variables they are."
    )
    parser.add_argument("--properties", metavar="FILE", help="Where `configure` writes to and `launch` reads from.")
    parser.add_argument(
        "--root",
        default=os.environ.get("OTTLA_CONTAINER_ROOT", ""),
        metavar="DIR",
        help="Look for all paths below this one. [$OTTLA_CONTAINER_ROOT]",
    )
    parser.add_argument("--check", action="store_true", help="Stop before the node would start.")
    return parser


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    # Imported late, so that a wrong argument is answered at once.
    from ottla.container.settings import ContainerError

    try:
        if arguments.step == "registry":
            return _registry(arguments)
        ready = _prepare(arguments)
    except ContainerError as refusal:
        print(f"{PROGRAM}: {refusal}", file=sys.stderr)
        return FAILED
    if arguments.check or arguments.step == "configure":
        return 0
    if ready.first_start is not None:
        _create_topics_later(ready.first_start)
    if ready.log_level:
        os.environ["OTTLA_LOG_LEVEL"] = ready.log_level
    print("===> Launching", flush=True)
    if ready.processes is not None:
        from ottla.processes.supervisor import supervise

        return supervise(ready.properties, ready.processes)
    from ottla.node.process import run

    return run(ready.properties)


class Launch(NamedTuple):
    """A node, or several processes, to start."""

    properties: dict[str, str]
    log_level: str | None
    #: None means one process that is broker and controller.
    processes: int | None
    first_start: FirstStart | None = None


def _prepare(arguments: argparse.Namespace) -> Launch:
    from ottla.container.checks import check_node
    from ottla.container.entry import CLUSTER_ID, configure, launch_properties
    from ottla.container.resolve import CONFIGURED
    from ottla.container.steps import run_scripts

    environment = _environment(arguments)
    path = arguments.properties or arguments.root + CONFIGURED
    processes = _processes(environment.get(PROCESSES, ""))
    if arguments.step == "launch":
        properties = launch_properties(path)
        _check_processes(properties, processes, dict.fromkeys(properties, path))
        return Launch(properties, environment.get("OTTLA_LOG_LEVEL"), processes)
    prepared = configure(environment, arguments.dialect, arguments.root, _say)
    _check_processes(prepared.properties, processes, prepared.origins)
    if arguments.step == "configure":
        prepared.write(path)
    elif arguments.check:
        if processes is None:
            check_node(prepared.properties, prepared.origins)
    else:
        if prepared.scripts_environment is not None:
            run_scripts(arguments.root, prepared.scripts_environment, _say)
        _format(prepared.first_start, prepared.properties, prepared.properties.get(CLUSTER_ID), processes)
    return Launch(prepared.properties, prepared.log_level, processes, prepared.first_start)


def _environment(arguments: argparse.Namespace) -> dict[str, str]:
    environment = dict(os.environ)
    for variable in arguments.variables:
        name, equals, value = variable.partition("=")
        if not equals:
            raise SystemExit(f"{PROGRAM}: {variable!r} is not VAR=value")
        environment[name] = value
    return environment


def _registry(arguments: argparse.Namespace) -> int:
    """Serve schemas until a signal ends it. Return the exit code.

    Raises:
        ContainerError: a registry with these variables would not do what they say.
    """
    from ottla.container.schema_registry import registry_start
    from ottla.container.settings import write_file

    start = registry_start(_environment(arguments))
    for note in start.notes:
        _say(f"===> Note: {note}")
    _say(f"===> ottla registry {shlex.join(start.arguments)}")
    if arguments.check:
        return 0
    _wait_for_brokers(start.servers, start.wait_s)
    given = list(start.arguments)
    if start.properties:
        # Passwords may be among the properties: only the owner can read the file.
        with tempfile.NamedTemporaryFile("w", prefix="ottla-registry-", delete=False, encoding="utf-8") as file:
            file.write(write_file(start.properties))
        given += ["--config", file.name]
    from ottla.cli.commands.registry import main as registry  # imported late: it needs HTTP

    return registry(given)


def _wait_for_brokers(servers: Sequence[tuple[str, int]], wait_s: float) -> None:
    """Wait until a broker takes connections, as cp-schema-registry's image does: compose files start brokers and registry at
    the same time.
    """
    until, said = time.monotonic() + wait_s, False
    while servers and time.monotonic() < until:
        for address in servers:
            with suppress(OSError), socket.create_connection(address, timeout=1):
                return
        if not said:
            _say(f"===> Note: no broker takes connections yet; they are waited for, {wait_s:g} s at most")
            said = True
        time.sleep(BROKERS_AGAIN_S)


def _format(
    first_start: FirstStart, properties: Mapping[str, str], cluster_id: str | None, processes: int | None
) -> None:
    """Format the empty directories as `kafka-storage format` does, if users or voters have to be written.

    Raises:
        ContainerError: the directories cannot be formatted.
    """
    if not first_start.users and not first_start.initial_controllers:
        return
    from ottla.container.first_start import add_scram
    from ottla.container.settings import ContainerError
    from ottla.local.storage_format import CannotFormat, format_directories
    from ottla.processes.plan import plan
    from ottla.protocol.primitives import new_uuid, uuid_to_str
    from ottla.server.config.key import ConfigError
    from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
    from ottla.storage.files import OsFiles

    rng = SystemRandom()
    options = argparse.Namespace(
        config="the environment",
        cluster_id=cluster_id or uuid_to_str(new_uuid(rng)),
        ignore_formatted=True,
        add_scram=list(add_scram(first_start.users, rng)),
        feature=[],
        release_version=None,
        standalone=False,
        no_initial_controllers=False,
        initial_controllers=first_start.initial_controllers,
    )
    nodes = [properties]
    if processes is not None:
        nodes = [node.properties for node in plan(properties, processes, socket.gethostname())]
    try:
        for node in nodes:
            for line in format_directories(OsFiles(), node, options, rng):
                _say(f"===> {line}")
    except (CannotFormat, ConfigError, InconsistentLogDirectory, StorageFailure) as fault:
        raise ContainerError(" ".join(str(fault).split()), "log.dirs", "correct it, or mount empty volumes") from None


def _create_topics_later(first_start: FirstStart) -> None:
    """Start a process that creates the topics as soon as the node serves, because this process becomes the node."""
    if first_start.topics is not None and first_start.servers is not None:
        command = [sys.executable, "-P", "-m", "ottla.cli.shims", "create-topics"]
        subprocess.Popen([*command, first_start.servers, first_start.topics.value])


def _processes(text: str) -> int | None:
    """Return the number of processes, None for an empty variable: compose files pass unset variables on as empty ones."""
    from ottla.container.settings import ContainerError

    if not text:
        return None
    try:
        return process_count(text)
    except ValueError as error:
        raise ContainerError(str(error), PROCESSES, "leave it out for a single process") from None


def _check_processes(properties: dict[str, str], processes: int | None, origins: dict[str, str]) -> None:
    """Check that the configurations of all processes can be derived, so that an error is printed in one line."""
    if processes is None:
        return
    from ottla.container.settings import ContainerError
    from ottla.processes.supervisor import prepare
    from ottla.server.config.key import ConfigError
    from ottla.storage.errors import InconsistentLogDirectory

    try:
        prepare(properties, processes, origins)
    except ConfigError as fault:
        raise ContainerError(" ".join(str(fault).split()), PROCESSES, fault.what_to_try) from None
    except InconsistentLogDirectory as fault:
        raise ContainerError(str(fault), "log.dirs", "restore the file, or mount an empty volume") from None


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
