"""The work of the entry point on a real machine: it reads, resolves, prints and checks the configuration."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from ottla.container.bitnami import BITNAMI, FORMAT_EMPTY
from ottla.container.checks import (
    check_addresses,
    check_cluster_id,
    check_directories,
    check_properties,
    unresolved_names,
)
from ottla.container.first_start import FirstStart, reachable
from ottla.container.resolve import detect, resolve
from ottla.container.settings import ContainerError, ContainerSetting, Environment, Resolution, read_file, write_file
from ottla.container.steps import with_commands_run, with_placeholders_filled

CLUSTER_ID = "cluster.id"
PATHS = ("log.dirs", "log.dir", "metadata.log.dir", "ssl.keystore.location", "ssl.truststore.location")


class PreparedStart(NamedTuple):
    """The configuration that the node is started with."""

    properties: dict[str, str]
    log_level: str | None
    #: The cluster id is not set: the format of the directories after this step decides it.
    id_is_default: bool
    #: The variable or file that each property comes from.
    origins: dict[str, str]
    first_start: FirstStart
    #: The environment of the scripts that users of the bitnami image mount.
    scripts_environment: Environment | None = None

    def write(self, path: str) -> None:
        properties = dict(self.properties)
        if self.id_is_default:
            properties.pop(CLUSTER_ID, None)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # Passwords may be among them.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(write_file(properties))


def configure(environment: Environment, dialect: str | None, root: str, say: Callable[[str], None]) -> PreparedStart:
    """Read, resolve, print and check the configuration. Only the start of the node remains.

    Raises:
        ContainerError: this node cannot run.
    """

    def read(path: str) -> bytes | None:
        return read_path(root, path)

    is_bitnami = detect(environment, read, dialect).dialect == BITNAMI
    environment = with_commands_run(environment) if is_bitnami else with_placeholders_filled(environment)
    resolution = resolve(environment, read, dialect)
    _below_root(resolution, root)
    config = None
    try:
        config = check_properties(resolution)
    finally:
        for line in resolution.report(() if config is None else _unknown(config.unknown)):
            say(line)
    check_directories(config, resolution)
    cluster_id = check_cluster_id(config, resolution)
    check_addresses(config, resolution)
    for host in unresolved_names(config):
        say(f"===> Note: {host} does not resolve here now")
    first_start = FirstStart(resolution.users, resolution.initial_controllers, resolution.topics, reachable(config))
    for note in first_start.notes():
        say(f"===> Note: {note}")
    properties = resolution.properties
    if cluster_id is not None:
        properties[CLUSTER_ID] = cluster_id
    # The other images do the same: at each start they format empty directories.
    properties.setdefault(FORMAT_EMPTY, "true")
    return PreparedStart(
        properties,
        resolution.log_level,
        resolution.cluster_id is None,
        {name: setting.origin for name, setting in resolution.settings.items()},
        first_start,
        environment if is_bitnami else None,
    )


def launch_properties(path: str) -> dict[str, str]:
    data = read_path("", path)
    if data is None:
        raise ContainerError(
            f"there is no file {path} that can be read", "launch", "run `ottla container configure` before"
        )
    return read_file(data, path)


def read_path(root: str, path: str) -> bytes | None:
    try:
        with open(root + path, "rb") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError):
        return None


def _unknown(names: list[str]) -> list[str]:
    return [name for name in names if not name.startswith("ottla.") and name != CLUSTER_ID]


def _below_root(resolution: Resolution, root: str) -> None:
    if not root:
        return
    for name in PATHS:
        setting = resolution.settings.get(name)
        if setting is not None:
            moved = ",".join(root + part.strip() for part in setting.value.split(","))
            resolution.settings[name] = ContainerSetting(moved, setting.origin)
