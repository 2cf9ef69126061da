"""The command `ottla start [server.properties] [--override k=v ...] [--processes N]`: one node in the foreground, until SIGTERM or SIGINT.

Without a file it starts a complete cluster of one node with Kafka's ports. With a file, only the file counts, as in Kafka. With
`--processes` it starts a controller and N brokers, each as a process (ottla/processes/).
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable
from contextlib import suppress

from ottla.node.default_node import PROGRAM, SHARED, default_properties, is_of_another
from ottla.processes.command_parser import CommandParser
from ottla.processes.plan import process_count


def parser() -> CommandParser:
    parser = CommandParser(PROGRAM, "Run one node in the foreground.")
    parser.add_argument(
        "properties", nargs="?", metavar="server.properties", help="A file with Kafka's property names."
    )
    parser.add_argument(
        "--override",
        type=override,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="A property that wins over the file's.",
    )
    add_emulate(parser)
    parser.add_argument(
        "--processes",
        type=_processes,
        metavar="N",
        help="A controller and N brokers, a process each, for a machine with many cores (docs/SCALE.md).",
    )
    return parser


def add_emulate(parser: argparse.ArgumentParser) -> None:
    """Add the option --emulate, whose value is a list with one property."""
    parser.add_argument(
        "--emulate",
        type=_emulated,
        metavar="RELEASE",
        help="Show clients what this release of Apache Kafka has, 2.1 to 4.4 (docs/EMULATE.md). [default: 4.4]",
    )


def _emulated(text: str) -> list[tuple[str, str]]:
    from ottla.protocol.releases import UnknownRelease, release_name

    try:
        return [("ottla.advertised.release", release_name(text))]
    except UnknownRelease as unknown:
        raise argparse.ArgumentTypeError(str(unknown)) from None


def _processes(text: str) -> int:
    try:
        return process_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def override(text: str) -> tuple[str, str]:
    """Return the name and the value of a property in `--override`.

    Raises:
        ArgumentTypeError: the text has another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def properties_of(arguments: argparse.Namespace) -> dict[str, str]:
    if arguments.properties is None:
        properties = default_properties()
        if "listeners" not in dict(arguments.override):
            print(
                f"{PROGRAM}: without a file the node serves all interfaces, port 9092, without logins", file=sys.stderr
            )
    else:
        from ottla.server.config.properties_file import read_properties

        try:
            with open(arguments.properties, "rb") as file:
                properties = read_properties(file.read(), arguments.properties)
        except OSError as failure:
            raise SystemExit(f"{PROGRAM}: cannot read {arguments.properties}: {failure.strerror}") from None
    properties.update(arguments.override)
    if properties.get("log.dirs") == SHARED and is_of_another(SHARED):
        raise SystemExit(
            f"{PROGRAM}: {SHARED} is of another user: start in a folder that you can write to, or pass a file"
        )
    return properties


def imported() -> Callable[[list[str]], int]:
    """Import all that a node needs, and return its `main`.

    Garbage collections skip the imports: they would write to memory pages that all forks share.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    with suppress(ImportError):  # ottla/node/process.py uses it
        importlib.import_module("uvloop")
    importlib.import_module("ottla.node.process")
    gc.freeze()
    if was_enabled:
        gc.enable()
    return main


def main(argv: list[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    if arguments.emulate is not None:
        arguments.override += arguments.emulate
    properties = properties_of(arguments)
    where = dict.fromkeys(properties, arguments.properties or "default") | dict.fromkeys(
        dict(arguments.override), "--override"
    )
    # Imported late, so that a wrong argument is answered at once.
    if arguments.processes is not None:
        from ottla.processes.supervisor import supervise

        return supervise(properties, arguments.processes, where)
    gc.disable()  # off until the node begins: searching the imports for garbage takes a tenth of the time
    from ottla.node.process import run

    return run(properties, where)


if __name__ == "__main__":
    sys.exit(main())
