"""The whole check of a node's directories, from their names to a report. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ottla.node.adoption.coordinators import FoundCoordinators, read_coordinators
from ottla.node.adoption.directories import CannotAdopt, Ownership, identify, unused
from ottla.node.adoption.logs import FoundLogs, kept_warnings, read_logs
from ottla.node.adoption.metadata import FoundMetadata, read_metadata
from ottla.node.adoption.preview import PreviewFiles
from ottla.node.adoption.properties import check_fit, completed, minimal, roles_of
from ottla.server.config.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found, and the properties with which the node can go on."""

    ownership: Ownership
    metadata: FoundMetadata
    logs: FoundLogs
    coordinators: FoundCoordinators
    roles: tuple[str, ...]
    #: Empty if only Kafka's file can say what the node needs, for these reasons.
    properties: Mapping[str, str]
    missing: tuple[str, ...] = ()


def check(paths: Sequence[str], properties: Mapping[str, str] | None, rng: Random, now_ms: int) -> Checked:
    """Checks directories for a start with these properties of Kafka's, or with minimal ones.

    Raises:
        CannotAdopt: for the reasons in it.
        ConfigError: the properties are not valid.
    """
    files = PreviewFiles()
    config = None if properties is None else NodeConfig(properties)
    if config is not None and not paths:
        paths = list(dict.fromkeys([config.metadata_log_directory, *config.log_directories]))
    ownership = identify(files, paths)
    with unused(files, ownership.paths):
        with kept_warnings() as warnings:
            metadata = read_metadata(files, ownership, now_ms)
        roles = roles_of(ownership, metadata)
        if config is not None:
            check_fit(config, ownership, roles)
        logs = read_logs(files, ownership, metadata.image, rng, now_ms)
        logs.recovery[:0] = warnings
        coordinators = read_coordinators(logs)
    try:
        chosen = completed(minimal(ownership, metadata) if properties is None else properties, metadata)
        missing: tuple[str, ...] = ()
    except CannotAdopt as failure:
        chosen, missing = {}, failure.reasons
    return Checked(ownership, metadata, logs, coordinators, tuple(roles), chosen, missing)
