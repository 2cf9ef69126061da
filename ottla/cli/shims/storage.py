"""kafka-storage: random-uuid, format, info. The directories are those of `log.dirs` and `metadata.log.dir`."""

from __future__ import annotations

import argparse
import socket
import sys
from random import SystemRandom
from typing import NoReturn

from ottla.cli.shims.tool import client_properties
from ottla.processes.plan import process_count
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.server.config.errors import ConfigError
from ottla.storage.directories.log_dirs import MetaProperties, read_meta_properties
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
from ottla.storage.files import OsFiles


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print(f"{self.prog.split()[0]}: error: {message}", file=sys.stderr)
        raise SystemExit(1)


def parser() -> argparse.ArgumentParser:
    made = _Parser(prog="kafka-storage", description="The Kafka storage tool.", allow_abbrev=False)
    steps = made.add_subparsers(dest="command", required=True, parser_class=_Parser)
    steps.add_parser("random-uuid", help="Print a random UUID.")
    for name, text in (
        ("info", "Get information about the Kafka log directories on this node."),
        ("format", "Format them."),
    ):
        step = steps.add_parser(name, help=text)
        step.add_argument("--config", "-c", required=True)
        if name == "format":
            step.add_argument("--cluster-id", "-t", required=True)
            step.add_argument("--ignore-formatted", "-g", action="store_true")
            step.add_argument("--add-scram", "-S", action="append")
            step.add_argument("--feature", "-f", action="append", default=[])
            step.add_argument("--release-version", "-r")
            step.add_argument("--processes", type=process_count, help="as `ottla start --processes` will have it")
            quorum = step.add_mutually_exclusive_group()
            quorum.add_argument("--standalone", "-s", action="store_true")
            quorum.add_argument("--no-initial-controllers", "-N", action="store_true")
            quorum.add_argument("--initial-controllers", "-I")
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command == "random-uuid":
        print(_random_id())
        return 0
    return _on_directories(options)


def _on_directories(options: argparse.Namespace) -> int:
    # Raft and the node's configuration: half a second of imports on a small machine, for these two commands only.
    from ottla.cli.storage_format import CannotFormat, directories_of, format_directories
    from ottla.processes.plan import plan

    properties = client_properties(options.config)
    try:
        if options.command == "info":
            return info(directories_of(properties))
        nodes = [properties]
        if options.processes is not None:
            nodes = [node.properties for node in plan(properties, options.processes, socket.gethostname())]
        lines = [line for node in nodes for line in format_directories(OsFiles(), node, options, SystemRandom())]
        print("\n".join(dict.fromkeys(lines)))
        return 0
    except (CannotFormat, ConfigError, InconsistentLogDirectory, StorageFailure) as fault:
        print(fault, file=sys.stderr)
        return 1


def _random_id() -> str:
    """Return a random id that does not begin with a dash, which a command line would read as an option."""
    rng = SystemRandom()
    while (text := uuid_to_str(new_uuid(rng))).startswith("-"):
        pass
    return text


def info(directories: list[str]) -> int:
    files = OsFiles()
    there = [path for path in directories if files.exists(path)]
    plural = "directory" if len(there) == 1 else "directories"
    print(f"Found log {plural}:" if there else "Found no log directories.")
    for path in sorted(there):
        print(f"  {path}")
    print()
    problems = []
    found: dict[str, MetaProperties] = {}
    for path in there:
        meta = read_meta_properties(files, path)
        if meta is None:
            problems.append(f"{path} is not formatted.")
        else:
            found[path] = meta
    if found:
        meta = next(iter(found.values()))
        fields = {"cluster.id": meta.cluster_id, "node.id": meta.node_id, "version": 1}
        if meta.directory_id is not None and len(found) == 1:
            fields["directory.id"] = uuid_to_str(meta.directory_id)
        print(f"Found metadata: {{{', '.join(f'{key}={fields[key]}' for key in sorted(fields))}}}\n")
    if len({meta.cluster_id for meta in found.values()}) > 1:
        problems.append("the directories belong to different clusters")
    if problems:
        print(f"Found problem{'s' if len(problems) > 1 else ''}:")
        for problem in problems:
            print(f"  {problem}")
        print()
        return 1
    return 0
