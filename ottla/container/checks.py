"""Checks before a node is started in a container; each failure is one line.

A directory is checked by writing, an address by binding: nothing else shows permissions, read-only mounts and busy ports.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import tempfile
from collections.abc import Mapping

from ottla.container.settings import ContainerError, Resolution
from ottla.server.authorization.authorizer import make_authorizer
from ottla.server.config.key import ConfigError
from ottla.server.config.listeners import Endpoint
from ottla.server.config.node_config import NodeConfig
from ottla.server.listening import bound_sockets
from ottla.storage.directories.log_dirs import MetaProperties, read_meta_properties
from ottla.storage.errors import FULL, InconsistentLogDirectory
from ottla.storage.files import OsFiles


def check_properties(resolution: Resolution) -> NodeConfig:
    """Check the node's configuration; an error names the variable that has the value."""
    resolved = {name: value for name, value in resolution.properties.items() if not name.startswith("ottla.")}
    if "process.roles" not in resolved:
        raise ContainerError(
            "process.roles is not set: this container is configured neither as broker nor as controller",
            _variable(resolution, "PROCESS_ROLES"),
            "set it to broker,controller for a node that is a cluster of its own, and node.id, listeners and "
            "controller.listener.names with it (or set no variable at all)",
        )
    try:
        config = NodeConfig(resolved)
        make_authorizer(config["authorizer.class.name"], config.static)
    except ConfigError as fault:
        raise _refusal(fault, resolution.origin(fault.name)) from None
    return config


def _refusal(fault: ConfigError, origin: str) -> ContainerError:
    where = f"{fault.name} ({origin})" if origin else fault.name
    return ContainerError(" ".join(str(fault).split()), where, fault.what_to_try or "correct it")


def check_node(properties: Mapping[str, str], origins: Mapping[str, str]) -> None:
    """Make the node without starting it, so that its own errors, such as an unreadable key store, are reported here.

    Raises:
        ContainerError: the node would not start.
    """
    from ottla.node.node import Node  # imported late: this is half of the imports of a start
    from ottla.server.world import RealWorld

    async def made() -> None:
        real = RealWorld(asyncio.get_running_loop())
        try:
            Node(real.world, properties)
        finally:
            await real.close()

    try:
        asyncio.run(made())
    except ConfigError as fault:
        raise _refusal(fault, origins.get(fault.name, "")) from None


def _variable(resolution: Resolution, name: str) -> str:
    return f"KAFKA_CFG_{name}" if resolution.dialect.startswith("bitnami") else f"KAFKA_{name}"


def check_directories(config: NodeConfig, resolution: Resolution, root: str = "") -> None:
    origin = resolution.origin("log.dirs") or resolution.origin("log.dir")
    for path in dict.fromkeys([*config.log_directories, config.metadata_log_directory]):
        try:
            os.makedirs(path, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        except OSError as fault:
            raise ContainerError(
                f"{path} cannot be written by user {os.getuid()}: {fault.strerror}",
                f"log.dirs ({origin})",
                _volume_remedy(path, fault.errno),
            ) from None


def _volume_remedy(path: str, number: int | None) -> str:
    if number == errno.EROFS:
        return f"mount a volume at {path} that is not read-only"
    if number in FULL:
        return f"make room on the volume at {path}"
    user = os.getuid()
    return f"mount a volume at {path} that this user may write (chown {user}, or run the container with --user of its owner)"


def check_cluster_id(config: NodeConfig, resolution: Resolution) -> str | None:
    """Return the id to start with: the given one, or that of the directories, or the image's; None for a new one.

    A directory of another cluster or node is rejected, because its records belong to that one.
    """
    found = {path: meta for path in config.log_directories if (meta := _meta(path)) is not None}
    wanted = resolution.cluster_id
    for path, meta in found.items():
        if wanted is not None and meta.cluster_id != wanted.value:
            raise ContainerError(
                f"{path} belongs to cluster {meta.cluster_id}, not {wanted.value}",
                wanted.origin,
                f"set {wanted.origin}={meta.cluster_id}, or mount an empty volume",
            )
        if meta.node_id != config.node_id:
            origin = resolution.origin("node.id") or resolution.origin("broker.id")
            raise ContainerError(
                f"{path} belongs to node {meta.node_id}, and this is node {config.node_id}",
                f"node.id ({origin})",
                "mount this node's own volume, or an empty one",
            )
    ids = {meta.cluster_id for meta in found.values()}
    if len(ids) > 1:
        raise ContainerError(
            f"the directories belong to different clusters: {', '.join(sorted(ids))}", "log.dirs", "mount one cluster's"
        )
    if wanted is not None:
        return wanted.value
    return next(iter(ids), resolution.default_cluster_id)


def _meta(path: str) -> MetaProperties | None:
    try:
        return read_meta_properties(OsFiles(), path)
    except InconsistentLogDirectory as fault:
        raise ContainerError(str(fault), "log.dirs", "restore the file, or mount an empty volume") from None


def check_addresses(config: NodeConfig, resolution: Resolution) -> None:
    """Check that the address of every listener can be bound, and that of the admin listener."""
    for endpoint in config.endpoints:
        _try_to_bind(endpoint, f"listeners ({resolution.origin('listeners')})")


def _try_to_bind(endpoint: Endpoint, where: str) -> None:
    host, port = endpoint.host, endpoint.port
    if port <= 0:
        return
    try:
        found = bound_sockets(host, port)
    except socket.gaierror as fault:
        raise ContainerError(
            f"{endpoint.name}://{host}:{port} cannot be listened on: {host} is not known here ({fault.strerror})",
            where,
            f"write {endpoint.name}://0.0.0.0:{port} and give {host} in advertised.listeners",
        ) from None
    except OSError as fault:
        raise ContainerError(
            f"{endpoint.name}://{host}:{port} cannot be listened on: {fault.strerror}",
            where,
            _address_remedy(endpoint, fault.errno),
        ) from None
    for each in found:
        each.close()


def _address_remedy(endpoint: Endpoint, number: int | None) -> str:
    if number == errno.EADDRINUSE:
        return f"stop what uses port {endpoint.port}, or choose another port"
    if number == errno.EADDRNOTAVAIL:
        return (
            f"{endpoint.host} is no address of this container: write {endpoint.name}://0.0.0.0:{endpoint.port} "
            f"and give {endpoint.host} in advertised.listeners"
        )
    if number in (errno.EACCES, errno.EPERM):
        return "choose a port above 1023, or give the container NET_BIND_SERVICE"
    return "choose another address"


def unresolved_names(config: NodeConfig) -> list[str]:
    """Return notes about advertised hosts and voters that this container cannot resolve. They may be resolvable later."""
    hosts = {e.advertised_host for e in config.endpoints if e.advertised_host} | {voter.host for voter in config.voters}
    return sorted(host for host in hosts if not _resolves(host))


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True
