"""The work of `kafka-storage format`: the first files in a node's directories.

every directory        meta.properties
a controller's         bootstrap.checkpoint: the features of a new cluster, for the first leader
of a dynamic quorum    also the snapshot 0-0: kraft.version 1 and the first voters (KIP-853)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from random import Random

from ottla.controller.raft.metadata_log import DIRECTORY
from ottla.controller.raft.snapshots import write_bootstrap, write_initial_voters
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.local.add_scram import read_add_scram
from ottla.node.formatting import new_directory_id, own_voter
from ottla.protocol.features import (
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSIONS,
    default_levels,
    metadata_version_level,
    metadata_version_name,
    supported_levels,
)
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, encode_record
from ottla.protocol.primitives import uuid_from_str
from ottla.protocol.releases import DEFAULT, METADATA_VERSION, Advertised
from ottla.server.address import parse_address
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.storage.directories.log_dirs import MetaProperties, read_meta_properties, write_meta_properties
from ottla.storage.errors import DiskFull, StorageFailure
from ottla.storage.files import Files

#: This level is 3.5-IV2, the first one with UserScramCredentialRecord (KIP-900).
SCRAM_METADATA_VERSION = metadata_version_level("3.5-IV2")


class CannotFormat(Exception):
    """No directory was formatted. The text has the reason."""


def directories_of(properties: Mapping[str, str]) -> list[str]:
    """Return the directories. The one of the metadata log comes first."""
    logs = properties.get("log.dirs") or properties.get("log.dir") or "/tmp/kafka-logs"
    metadata = properties.get("metadata.log.dir")
    names = [*([metadata] if metadata else []), *(part.strip() for part in logs.split(","))]
    return list(dict.fromkeys(name for name in names if name))


def format_directories(
    files: Files, properties: Mapping[str, str], options: argparse.Namespace, rng: Random
) -> list[str]:
    """Check everything first, then write to all directories or to none. Return lines about what was done, in Kafka's words.

    Raises:
        CannotFormat: a check or a write failed; what was written is removed.
        ConfigError: these are no valid properties of a node.
        InconsistentLogDirectory: a directory belongs to another node, or to a newer version.
    """
    node_id = _node_id(properties, options)
    # A file without process.roles is no node's configuration, but its directories are formatted, too.
    config = NodeConfig(properties) if "process.roles" in properties else None
    directory_id = new_directory_id(rng)
    voters = _initial_voters(config, options, directory_id)
    if voters is not None and (own := voters.get(node_id)) is not None:
        directory_id = own.key.directory_id
    advertised = DEFAULT if config is None else config.advertised
    levels = feature_levels(options.release_version, options.feature, advertised)
    _check_kraft_version(config, options.feature)
    users = _users(options.add_scram or [], levels[METADATA_VERSION], rng)
    directories = directories_of(properties)
    missing = _not_formatted(files, directories, options)
    if not missing:
        return ["All of the log directories are already formatted."]
    name = metadata_version_name(levels[METADATA_VERSION])
    kinds = {path: _kind(voters, node_id) if path == directories[0] else "data" for path in missing}
    with _all_or_none(files, missing):
        if directories[0] in missing and config is not None and config.is_controller:
            files.make_dirs(directories[0])
            write_bootstrap(files, directories[0], _feature_records(levels) + users, _now_ms())
            if voters is not None:
                write_initial_voters(files, f"{directories[0]}/{DIRECTORY}", voters, _now_ms())
        # This file is written last: it makes the directory a formatted one.
        for path in missing:
            identity = directory_id if path == directories[0] else new_directory_id(rng)
            write_meta_properties(files, path, MetaProperties(options.cluster_id, node_id, identity))
    formatting = (f"Formatting {kind} directory {path} with metadata.version {name}." for path, kind in kinds.items())
    return [_bootstrap_text(levels), *formatting]


@contextmanager
def _all_or_none(files: Files, directories: Sequence[str]) -> Iterator[None]:
    """Remove what was written to the directories if one of them failed: a disk may be full, or this user may not write to it."""
    before = {path: set(files.list_dir(path)) if files.exists(path) else None for path in directories}
    try:
        yield
    except (OSError, StorageFailure) as failure:
        for path, names in before.items():
            with suppress(StorageFailure):
                if names is None:
                    files.remove_tree(path)
                else:
                    for name in set(files.list_dir(path)) - names:
                        _remove(files, f"{path}/{name}")
        what = f"{failure.path}: {_reason(failure.cause)}" if isinstance(failure, StorageFailure) else str(failure)
        remedy = (
            "make room there" if isinstance(failure, DiskFull) else "the user that runs the node needs to write there"
        )
        raise CannotFormat(f"{what}. No directory was formatted: {remedy}, and run it again") from None


def _remove(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except StorageFailure:
        files.remove_tree(path)


def _reason(cause: BaseException | str) -> str:
    return str(cause.strerror if isinstance(cause, OSError) else cause)


def _kind(voters: VoterSet | None, node_id: int) -> str:
    """Return Kafka's text about the directory of the metadata log."""
    if voters is None:
        return "metadata"
    return "dynamic metadata" if voters.get(node_id) is None else "dynamic metadata voter"


def _bootstrap_text(levels: Mapping[str, int]) -> str:
    rows = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{name}', featureLevel={levels[name]}) at version 0)"
        for name in _in_order(levels)
    )
    level = levels[METADATA_VERSION]
    return (
        f"Bootstrap metadata: BootstrapMetadata(records=[{rows}], metadataVersionLevel={level}, source=format command)"
    )


def _users(arguments: list[str], metadata_version: int, rng: Random) -> list[bytes]:
    if arguments and metadata_version < SCRAM_METADATA_VERSION:
        raise CannotFormat("SCRAM is only supported in metadata.version 3.5-IV2 or later.")
    try:
        return [encode_record(read_add_scram(text, rng), 0) for text in arguments]
    except ValueError as fault:
        raise CannotFormat(str(fault)) from None


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _node_id(properties: Mapping[str, str], options: argparse.Namespace) -> int:
    node_id = properties.get("node.id") or properties.get("broker.id")
    if node_id is None or not node_id.strip().isdecimal():
        raise CannotFormat(f"node.id is not set in {options.config}")
    return int(node_id)


def _not_formatted(files: Files, directories: list[str], options: argparse.Namespace) -> list[str]:
    found = {path: read_meta_properties(files, path) for path in directories}
    for path, meta in found.items():
        if meta is None:
            continue
        if not options.ignore_formatted:
            raise CannotFormat(
                f"Log directory {path} is already formatted. Use --ignore-formatted to ignore this directory and format the others."
            )
        if meta.cluster_id != options.cluster_id:
            raise CannotFormat(
                f"Invalid cluster.id in: {path}/meta.properties. Expected {options.cluster_id}, but read {meta.cluster_id}"
            )
    return [path for path, meta in found.items() if meta is None]


# -- The first voters ------------------------------------------------------------------------------------------------


def _initial_voters(config: NodeConfig | None, options: argparse.Namespace, directory_id: bytes) -> VoterSet | None:
    """Return None for a quorum of configured voters, and for a node that is added to a quorum later."""
    if options.no_initial_controllers:
        return None
    if not (options.standalone or options.initial_controllers):
        if config is not None and config.is_controller and config.bootstrap_servers and not config.voters:
            raise CannotFormat(
                "Because controller.quorum.voters is not set on this controller, you must specify one of the following:"
                " --standalone, --initial-controllers, or --no-initial-controllers."
            )
        return None
    if config is None:
        raise CannotFormat(f"process.roles is not set in {options.config}")
    if config.voters:
        raise CannotFormat(
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers or --standalone. If you"
            " want to use dynamic quorum, please remove controller.quorum.voters and specify"
            " controller.quorum.bootstrap.servers instead."
        )
    if not config.is_controller:
        option = "--standalone" if options.standalone else "--initial-controllers"
        raise CannotFormat(f"You can only use {option} on a controller.")
    if options.initial_controllers:
        return read_initial_controllers(options.initial_controllers, config.controller_names[0])
    return VoterSet.of([own_voter(config, directory_id)])


def read_initial_controllers(text: str, listener: str) -> VoterSet:
    """Read `id@host:port:directory-id`, separated by commas. All these voters are formatted with the same list."""
    voters: dict[int, Voter] = {}
    for entry in (part.strip() for part in text.split(",")):
        try:
            node_id, _, rest = entry.partition("@")
            address, _, directory = rest.rpartition(":")
            host, port = parse_address(address)
            key = ReplicaKey(int(node_id), uuid_from_str(directory))
        except (ValueError, ConfigError):
            raise CannotFormat(f"--initial-controllers wants id@host:port:directory-id, not {entry!r}") from None
        if key.id < 0 or not key.knows_directory:
            raise CannotFormat(f"--initial-controllers wants a node id and a directory id, not {entry!r}")
        if key.id in voters:
            raise CannotFormat(f"--initial-controllers names node {key.id} twice")
        voters[key.id] = Voter(key, (QuorumEndpoint(listener, host, port),))
    return VoterSet.of(voters.values())


# -- The features of a new cluster -----------------------------------------------------------------------------------


def feature_levels(release: str | None, features: list[str], advertised: Advertised = DEFAULT) -> dict[str, int]:
    """Return the feature levels of a new cluster, changed by `name=level`. kraft.version follows from the kind of voters."""
    wanted = dict(_feature(text) for text in features)
    if release is not None and METADATA_VERSION in wanted:
        raise CannotFormat("Use --release-version instead of --feature metadata.version=X to avoid ambiguity.")
    metadata_version = wanted.pop(METADATA_VERSION, advertised.metadata_version)
    if release is not None:
        try:
            metadata_version = metadata_version_level(release)
        except ValueError:
            names = [each.name for each in METADATA_VERSIONS if each.level <= advertised.metadata_version]
            text = f"Unknown metadata.version '{release}'. Supported metadata.version are: {', '.join(names)}"
            raise CannotFormat(text) from None
    levels = {**default_levels(metadata_version, advertised), **wanted}
    levels.pop(KRAFT_VERSION)
    for name, level in levels.items():
        lowest, highest = supported_levels(advertised)[name]
        if level and not lowest <= level <= highest:
            known = f"{name} can be {lowest} to {highest} here, not {level}"
            raise CannotFormat(known if name == METADATA_VERSION else f"No feature:{name} with feature level {level}")
        needed = max(FEATURES[name].needs[:level], default=0) if name in FEATURES else 0
        if needed > metadata_version:
            raise CannotFormat(
                f"{name} could not be set to {level} because it depends on {METADATA_VERSION} level {needed}"
            )
    return levels


def _feature(text: str) -> tuple[str, int]:
    name, _, level = text.partition("=")
    if name not in supported_levels():
        raise CannotFormat(f"Unsupported feature: {name}. Supported features are: {', '.join(sorted(FEATURES))}")
    try:
        return name, metadata_version_level(level) if name == METADATA_VERSION else int(level)
    except ValueError:
        raise CannotFormat(f"--feature wants name=level, not {text!r}") from None


def _check_kraft_version(config: NodeConfig | None, features: list[str]) -> None:
    """Reject a kraft.version that the quorum cannot have: it follows from how the voters are configured."""
    is_dynamic = config is not None and not config.voters
    for text in features:
        name, level = _feature(text)
        if name == KRAFT_VERSION and bool(level) != is_dynamic:
            flags = "--standalone, --initial-controllers, or --no-initial-controllers"
            how = f"controller.quorum.voters is empty and one of the flags {flags} is used"
            hint = (
                "removing the --feature flag for kraft.version"
                if is_dynamic
                else f"using one of {flags} and removing controller.quorum.voters"
            )
            raise CannotFormat(
                f"Cannot set kraft.version to {level} {'if' if is_dynamic else 'unless'} {how}. For dynamic controllers"
                f" support, try {hint}."
            )


def _in_order(levels: Mapping[str, int]) -> list[str]:
    """Return the features that have a level. metadata.version comes first, because it decides how the others are decoded."""
    return [METADATA_VERSION, *sorted(name for name, level in levels.items() if level and name != METADATA_VERSION)]


def _feature_records(levels: Mapping[str, int]) -> list[bytes]:
    names = _in_order(levels)
    return [encode_record(FeatureLevelRecord(name=name, feature_level=levels[name]), 0) for name in names]
