"""kafka-metadata-shell: the metadata in a snapshot or a segment of the metadata log, read as a tree of files."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.cli.shims.tool import TreeParser
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.storage.errors import StorageFailure

if TYPE_CHECKING:
    from ottla.cli.shims.metadata_commands import Shell

COMMIT = "unknown"


def main(arguments: list[str]) -> int:
    parser = TreeParser("kafka-metadata-shell", "The Apache Kafka metadata shell")
    parser.add_argument("--snapshot", "-s", help="The metadata snapshot file to read.")
    parser.add_argument("command", nargs="*", help="The command to run.")
    options = parser.parse_args(arguments)
    if options.snapshot is None:
        parser.error("argument --snapshot/-s is required")
    try:
        return _run(options)
    except (KafkaError, ProtocolError, StorageFailure, OSError) as failure:
        print(f"Unexpected error: {failure}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    # Imported late: the controller's image takes a fifth of a second, and only this tool needs it.
    from ottla.cli.metadata_tree import read_image, tree
    from ottla.cli.shims.metadata_commands import Shell
    from ottla.protocol.releases import RELEASES
    from ottla.storage.files import OsFiles

    if not os.path.exists(options.snapshot):
        print(f"Unexpected error: java.nio.file.NoSuchFileException: {options.snapshot}", file=sys.stderr)
        return 1
    if not options.command:
        print("Loading...")
    root = {
        "image": tree(*read_image(OsFiles(), options.snapshot)),
        "local": {"commitId": COMMIT, "version": next(iter(RELEASES))},
    }
    shell = Shell(root, interactive=not options.command)
    if options.command:
        for line in shell.run(options.command):
            print(line)
        return 0
    print("Starting...")
    return _interact(shell)


def _interact(shell: Shell) -> int:
    from ottla.cli.shims.metadata_commands import Leave

    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if on_terminal:
        import_module("readline")  # it gives `input` arrow keys
    print("[ Kafka Metadata Shell ]")
    while True:
        try:
            line = input(">> ")
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print("^C")
            continue
        shell.remember(line)
        try:
            for text in shell.run(_words(line), shutil.get_terminal_size().columns if on_terminal else None):
                print(text)
        except Leave:
            return 0


def _words(line: str) -> list[str]:
    """Split a line as a shell does. A quotation mark that is not closed ends with the line."""
    for end in ("", "'", '"', "\\"):
        try:
            return shlex.split(line + end)
        except ValueError:
            continue
    return []
