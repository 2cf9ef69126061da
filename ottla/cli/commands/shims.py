"""The command `ottla shims DIR`: writes a launcher for each of Kafka's tools, so that a PATH with DIR has them by their names."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.kafka_tools import TOOLS
from ottla.processes.command_parser import CommandParser

#: The launchers' names in Confluent's packages, and in Apache's.
SUFFIXES = ("", ".sh")


def parser() -> CommandParser:
    parser = CommandParser(
        "ottla shims", "Write launchers of Kafka's tools (kafka-topics, kafka-topics.sh, ...) into a directory."
    )
    parser.add_argument(
        "directory", metavar="DIR", help="For example ~/.local/bin, or a new one to be put on the PATH."
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    directory = Path(parser().parse_args(arguments).directory).expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for tool in TOOLS:
            for suffix in SUFFIXES:
                write_launcher(directory / f"{tool}{suffix}", tool)
    except OSError as failure:
        hint = "name a directory that you may write to"
        raise CommandFailed(f"{failure.filename}: {failure.strerror}", hint, USAGE) from None
    print(f"{len(TOOLS)} tools in {directory}, each with and without .sh")
    if str(directory.resolve()) not in os.environ.get("PATH", "").split(os.pathsep):
        print(f"put them on the PATH: export PATH={shlex.quote(str(directory.resolve()))}:$PATH")
    return 0


def write_launcher(path: Path, tool: str) -> None:
    """Write a script that runs the tool with the Python of this process.

    Raises:
        FileExistsError: another program has the name. It is left as it is.
    """
    script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m ottla.cli.shims {tool} "$@"\n'
    if path.exists() and b"ottla.cli.shims" not in path.read_bytes():
        raise FileExistsError(17, "is there already, and is none of these launchers", str(path))
    path.write_text(script)
    path.chmod(0o755)
