"""kafka-storage: random-uuid, format, info. The directories are those of `log.dirs` and `metadata.log.dir`."""

from __future__ import annotations

import argparse
import sys
from random import SystemRandom
from typing import NoReturn

from ottla.formatting import new_directory_id
from ottla.shims.tool import read_client_properties
from protocol.primitives import new_uuid
from storage.errors import InconsistentLogDirectory, StorageFailure
from storage.files import OsFiles
from storage.log_dirs import MetaProperties, id_to_text, read_meta_properties, write_meta_properties

METADATA_VERSION = "4.3-IV0"


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
            step.add_argument("--feature", "-f", action="append")
            step.add_argument("--release-version", "-r")
            quorum = step.add_mutually_exclusive_group()
            quorum.add_argument("--standalone", "-s", action="store_true")
            quorum.add_argument("--no-initial-controllers", "-N", action="store_true")
            quorum.add_argument("--initial-controllers", "-I")
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    rng = SystemRandom()
    if options.command == "random-uuid":
        print(_random_id(rng))
        return 0
    properties = read_client_properties(options.config)
    directories = _directories(properties)
    try:
        if options.command == "info":
            return info(directories)
        return format_directories(directories, properties, options, rng)
    except (InconsistentLogDirectory, StorageFailure) as fault:
        print(fault, file=sys.stderr)
        return 1


def _random_id(rng: SystemRandom) -> str:
    """Not one that begins with a dash: it would be taken for an option when it is pasted."""
    while (text := id_to_text(new_uuid(rng))).startswith("-"):
        pass
    return text


def _directories(properties: dict[str, str]) -> list[str]:
    logs = properties.get("log.dirs") or properties.get("log.dir") or "/tmp/kafka-logs"
    metadata = properties.get("metadata.log.dir")
    names = [*([metadata] if metadata else []), *(part.strip() for part in logs.split(","))]
    return list(dict.fromkeys(name for name in names if name))


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
            fields["directory.id"] = id_to_text(meta.directory_id)
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


def format_directories(
    directories: list[str], properties: dict[str, str], options: argparse.Namespace, rng: SystemRandom
) -> int:
    if options.add_scram:
        print(
            "--add-scram is not supported: create users with AlterUserScramCredentials once the node runs",
            file=sys.stderr,
        )
        return 1
    node_id = properties.get("node.id") or properties.get("broker.id")
    if node_id is None or not node_id.strip().isdecimal():
        print(f"node.id is not set in {options.config}", file=sys.stderr)
        return 1
    files = OsFiles()
    found = {path: read_meta_properties(files, path) for path in directories}
    formatted = {path: meta for path, meta in found.items() if meta is not None}
    if formatted and not options.ignore_formatted:
        path = next(iter(formatted))
        print(
            f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and format the others.",
            file=sys.stderr,
        )
        return 1
    for path, meta in formatted.items():
        if meta.cluster_id != options.cluster_id:
            print(
                f"Invalid cluster.id in: {path}/meta.properties. Expected {options.cluster_id}, but read {meta.cluster_id}",
                file=sys.stderr,
            )
            return 1
    missing = [path for path in directories if path not in formatted]
    if not missing:
        print("All of the log directories are already formatted.")
    for path in missing:
        release = options.release_version or METADATA_VERSION
        print(
            f"Formatting {'metadata ' if path == directories[0] else 'data '}directory {path} with metadata.version {release}."
        )
        write_meta_properties(files, path, MetaProperties(options.cluster_id, int(node_id), new_directory_id(rng)))
    return 0
