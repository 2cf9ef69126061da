"""kafka-storage: format, info, and the dependencies of features.

The directories are those of `log.dirs` and `metadata.log.dir`.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from random import SystemRandom

from ottla.cli.shims.features import dependencies, version_mapping
from ottla.cli.shims.tool import HelpfulParser, Unusable, client_properties
from ottla.processes.plan import process_count
from ottla.protocol.features import FEATURES, METADATA_VERSIONS
from ottla.protocol.primitives import new_uuid, uuid_to_str
from ottla.protocol.releases import METADATA_VERSION, METADATA_VERSION_MIN
from ottla.server.config.key import ConfigError
from ottla.storage.directories.log_dirs import MetaProperties, read_meta_properties
from ottla.storage.errors import InconsistentLogDirectory, StorageFailure
from ottla.storage.files import OsFiles

#: Kafka's message for the properties file of a broker without KRaft.
NO_ROLES = 'Missing required configuration "process.roles" which has no default value.'


def parser() -> argparse.ArgumentParser:
    made = HelpfulParser("kafka-storage", "The Kafka storage tool.")
    steps = made.add_subparsers(dest="command", required=True, parser_class=HelpfulParser)
    for name, text in (
        ("info", "Get information about the Kafka log directories on this node."),
        ("format", "Format the Kafka log directories on this node."),
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
    mapping = steps.add_parser("version-mapping", help="Look up the features of a metadata version.")
    mapping.add_argument("--release-version", "-r")
    needs = steps.add_parser("feature-dependencies", help="Look up what levels of features need.")
    needs.add_argument("--feature", "-f", action="append", required=True)
    steps.add_parser("random-uuid", help="Print a random UUID.")
    return made


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    if options.command == "random-uuid":
        print(_random_id())
        return 0
    try:
        if options.command == "version-mapping":
            return version_mapping(options.release_version)
        if options.command == "feature-dependencies":
            return _dependencies(options.feature)
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
        return 1
    return _on_directories(options)


def _dependencies(features: list[str]) -> int:
    """Print the dependencies of each level. The work is done by kafka-features, but the messages are this tool's own."""
    for text in features:
        name, equals, level = (part.strip() for part in text.partition("="))
        if not equals:
            expected = "Expected format: 'feature=version' (e.g. 'group.version=1')"
            raise Unusable(f"Invalid feature format: {text}. {expected}")
        if not level.lstrip("-").isdecimal():
            raise Unusable(f"Invalid version format: {level} for feature {name}")
        if name == METADATA_VERSION and not METADATA_VERSION_MIN <= int(level) <= METADATA_VERSIONS[-1].level:
            raise Unusable(f"Unknown metadata.version {level}")
        if name in FEATURES and not 0 <= int(level) <= len(FEATURES[name].needs):
            raise Unusable(f"Feature level {level} is not supported for feature {name}")
        dependencies([text])
    return 0


def _on_directories(options: argparse.Namespace) -> int:
    # Imported late: Raft and the node's configuration take half a second on a small machine, and only these two commands need
    # them.
    from ottla.local.storage_format import CannotFormat, directories_of, format_directories
    from ottla.processes.plan import plan

    properties = client_properties(options.config)
    if not properties.get("process.roles"):
        print(NO_ROLES, file=sys.stderr)
        return 1
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
    """Print the directories that exist, what the first one is formatted for, and what is wrong with the others."""
    files = OsFiles()
    there: list[str] = []
    found: list[MetaProperties] = []
    problems: list[str] = []
    for path in sorted(directories):
        if not os.path.isdir(path):
            problems.append(f"{path} is not a directory" if os.path.exists(path) else f"{path} does not exist")
            continue
        there.append(path)
        meta = read_meta_properties(files, path)
        if meta is None:
            problems.append(f"{path} is not formatted.")
        elif found and found[0].cluster_id != meta.cluster_id:
            problems.append("Mismatched cluster IDs between storage directories.")
        elif found and found[0].node_id != meta.node_id:
            problems.append("Mismatched node IDs between storage directories.")
        else:
            found.append(meta)
    if there:
        print("Found log directory:" if len(there) == 1 else "Found log directories:")
        print("".join(f"  {path}\n" for path in there))
    if found:
        meta = found[0]
        fields = {"cluster.id": meta.cluster_id, "node.id": meta.node_id, "version": 1}
        if meta.directory_id is not None:
            fields["directory.id"] = uuid_to_str(meta.directory_id)
        print(f"Found metadata: {{{', '.join(f'{key}={fields[key]}' for key in sorted(fields))}}}\n")
    if problems:
        print("Found problem:" if len(problems) == 1 else "Found problems:")
        print("".join(f"  {problem}\n" for problem in problems))
    return 1 if problems else 0
