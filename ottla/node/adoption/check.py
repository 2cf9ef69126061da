"""The whole check of a node's directories, from their names to a report. It changes nothing.

The properties of the node that goes on are those of Kafka's server.properties, or a minimal set made from what the directories
say. The report has rows of findings, and sentences about the changes that a start makes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.node.adoption.directories import CannotAdopt, FoundMetadata, Ownership, identify, read_metadata, unused
from ottla.node.adoption.logs import FoundCoordinators, FoundLogs, kept_warnings, read_coordinators, read_logs
from ottla.node.adoption.preview import PreviewFiles
from ottla.protocol.features import KRAFT_VERSION, metadata_version_name
from ottla.protocol.releases import METADATA_VERSION
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import SYSTEM, is_remote

ADVERTISED_RELEASE = "ottla.advertised.release"
GIVE_FILE = "give Kafka's own file with --config server.properties"
PLAINTEXT = 0
BROKER, CONTROLLER = "broker", "controller"
#: These records and offsets must be kept for ever: Kafka's file may have a retention above the defaults, with which they would
#: expire.
KEEP = {"log.retention.ms": "-1", "log.retention.bytes": "-1", "offsets.retention.minutes": "2147483647"}
#: Internal topics that a single broker has still to create.
ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


def roles_of(found: Ownership, metadata: FoundMetadata) -> list[str]:
    """Return the roles of the node. It is a controller if it is a voter, and a broker if it is registered as one or is no
    voter.
    """
    is_controller = found.node_id in metadata.voter_ids
    is_broker = found.node_id in metadata.image.cluster.brokers or not is_controller
    return [name for name, has in ((BROKER, is_broker), (CONTROLLER, is_controller)) if has]


def completed(properties: Mapping[str, str], metadata: FoundMetadata) -> dict[str, str]:
    """Return Kafka's properties. The release to advertise is added, unless they name one: a release that Kafka can go on from
    again, if the features allow.
    """
    return {ADVERTISED_RELEASE: metadata.release, **properties}


def check_fit(config: NodeConfig, found: Ownership, roles: list[str]) -> None:
    """Raise CannotAdopt if the properties are not those of the node that has the directories."""
    reasons = []
    if config.node_id != found.node_id:
        reasons.append(f"the file is of node {config.node_id}, and the directories are of node {found.node_id}")
    configured = {*config.log_directories, config.metadata_log_directory}
    if configured != set(found.paths):
        reasons.append(
            f"the file names the directories {', '.join(sorted(configured))}, and you named {', '.join(sorted(found.paths))}: "
            "name the same, or none"
        )
    if found.metadata_directory != config.metadata_log_directory:
        reasons.append(
            f"the metadata log is in {found.metadata_directory}, and the file wants it in {config.metadata_log_directory}"
        )
    cluster_id = config["cluster.id"]
    if cluster_id not in (None, found.cluster_id):
        reasons.append(f"the file is of cluster {cluster_id}, and the directories are of cluster {found.cluster_id}")
    given = [name for name, has in ((BROKER, config.is_broker), (CONTROLLER, config.is_controller)) if has]
    if CONTROLLER in roles and CONTROLLER not in given:
        reasons.append(
            f"the file makes a {' and '.join(given)}, and the node is a voter of the quorum: process.roles lacks controller"
        )
    if reasons:
        raise CannotAdopt(reasons)


def remote_topics(metadata: FoundMetadata) -> list[str]:
    """Return the topics that have segments in remote storage, or may have some (KIP-405)."""
    image = metadata.image
    return sorted(topic.name for topic in image.topics if is_remote(image.configs.for_topic(topic.name)))


def check_remote_storage(config: NodeConfig, metadata: FoundMetadata) -> None:
    """Raise CannotAdopt if a broker would start without the remote storage that its topics have."""
    remote = remote_topics(metadata)
    if remote and config.is_broker and not config[SYSTEM]:
        raise CannotAdopt(
            [
                f"{_some(remote)} have segments in remote storage, and the file does not say {SYSTEM}=true: their older records could not be"
                " read here"
            ]
        )


def minimal(found: Ownership, metadata: FoundMetadata) -> dict[str, str]:
    """Make properties with which the node goes on at its registered addresses. Raises CannotAdopt: Kafka's file alone says what is needed.

    With these properties nothing expires: the default retention of records and offsets is known from Kafka's file alone. Keys
    and logins are known from it alone, too, so that a node with secured listeners or access control entries needs that file.
    """
    roles, image = roles_of(found, metadata), metadata.image
    broker = image.cluster.brokers.get(found.node_id)
    broker_endpoints = list(broker.endpoints.values()) if broker is not None and BROKER in roles else []
    quorum = _quorum_endpoints(metadata)
    reasons = []
    if BROKER in roles and len(broker_endpoints) != 1:
        names = ", ".join(endpoint.name for endpoint in broker_endpoints) or "no listener"
        reasons.append(
            f"the broker is registered with {names}, and which of them brokers use is in its file alone: {GIVE_FILE}"
        )
    unknown = sorted(metadata.voter_ids - quorum.keys())
    if unknown or not quorum:
        reasons.append(
            f"the addresses of the controllers {', '.join(map(str, unknown)) or '(none known)'} are not in the metadata: {GIVE_FILE}"
        )
    own = [*broker_endpoints, *([quorum[found.node_id]] if CONTROLLER in roles and found.node_id in quorum else [])]
    if secured := [endpoint.name for endpoint in (*own, *quorum.values()) if endpoint.security_protocol != PLAINTEXT]:
        reasons.append(
            f"{' and '.join(dict.fromkeys(secured))} are secured, and keys and logins are not in the directories: {GIVE_FILE}"
        )
    if image.acls.entries:
        reasons.append(
            f"there are {len(image.acls.entries)} access control entries, and without the authorizer of the file no request would be "
            f"checked: {GIVE_FILE}"
        )
    if remote := remote_topics(metadata):
        reasons.append(
            f"{_some(remote)} have segments in remote storage, and its place is not in the metadata: {GIVE_FILE}"
        )
    if reasons:
        raise CannotAdopt(reasons)
    return {
        "process.roles": ",".join(roles),
        "node.id": str(found.node_id),
        **_directories(found, broker.directories if broker is not None else ()),
        "listeners": ",".join(map(_address, own)),
        "listener.security.protocol.map": ",".join(
            dict.fromkeys(f"{e.name}:PLAINTEXT" for e in (*own, *quorum.values()))
        ),
        "controller.listener.names": next(iter(quorum.values())).name,
        **({"inter.broker.listener.name": broker_endpoints[0].name} if broker_endpoints else {}),
        **_voters(metadata, quorum),
        **(KEEP if BROKER in roles else {}),
        **(ALONE if len(image.cluster.brokers) == 1 else {}),
    }


def _directories(found: Ownership, registered: Collection[bytes | None]) -> dict[str, str]:
    """Return the properties of the directories. A directory that the broker is not registered with has only the metadata
    log.
    """
    others = [path for path in found.paths if path != found.metadata_directory]
    if others and registered and found.identities[found.metadata_directory].directory_id not in registered:
        return {"log.dirs": ",".join(others), "metadata.log.dir": found.metadata_directory}
    return {"log.dirs": ",".join([found.metadata_directory, *others])}


def _address(endpoint: RegisteredEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.name}://{host}:{endpoint.port}"


def _quorum_endpoints(metadata: FoundMetadata) -> dict[int, RegisteredEndpoint]:
    """Return the first endpoint of each voter: of its registration (KIP-919), or of the voters in the log (KIP-853)."""
    registered = metadata.image.cluster.controllers
    found = {node: next(iter(registered[node].endpoints.values())) for node in metadata.voter_ids if node in registered}
    protocols = {endpoint.name: endpoint.security_protocol for endpoint in found.values()}
    for voter in metadata.voters:
        if voter.endpoints and voter.key.id not in found:
            name, host, port = voter.endpoints[0]
            found[voter.key.id] = RegisteredEndpoint(name, host, port, protocols.get(name, PLAINTEXT))
    return dict(sorted(found.items()))


def _voters(metadata: FoundMetadata, quorum: Mapping[int, RegisteredEndpoint]) -> dict[str, str]:
    if metadata.levels()[KRAFT_VERSION]:
        return {"controller.quorum.bootstrap.servers": ",".join(f"{e.host}:{e.port}" for e in quorum.values())}
    return {"controller.quorum.voters": ",".join(f"{node}@{e.host}:{e.port}" for node, e in quorum.items())}


Facts = dict[str, object]
#: The names of a list that are shown.
NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Checked:
    """The findings, and the properties with which the node can go on."""

    ownership: Ownership
    metadata: FoundMetadata
    logs: FoundLogs
    coordinators: FoundCoordinators
    roles: tuple[str, ...]
    #: Empty if only Kafka's file can say what the node needs, for these reasons.
    properties: Mapping[str, str]
    missing: tuple[str, ...] = ()


def check(paths: Sequence[str], properties: Mapping[str, str] | None, rng: Random, now_ms: int) -> Checked:
    """Check directories for a start with these properties of Kafka's, or with minimal ones.

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
            check_remote_storage(config, metadata)
        logs = read_logs(files, ownership, metadata.image, rng, now_ms)
        logs.recovery[:0] = warnings
        coordinators = read_coordinators(logs)
    try:
        chosen = completed(minimal(ownership, metadata) if properties is None else properties, metadata)
        missing: tuple[str, ...] = ()
    except CannotAdopt as failure:
        chosen, missing = {}, failure.reasons
    return Checked(ownership, metadata, logs, coordinators, tuple(roles), chosen, missing)


def facts(checked: Checked) -> Facts:
    """Return the findings by name."""
    owner, metadata, logs, coordinators = checked.ownership, checked.metadata, checked.logs, checked.coordinators
    image, snapshot = metadata.image, metadata.latest_snapshot
    levels = metadata.levels()
    return {
        "cluster_id": owner.cluster_id,
        "node_id": owner.node_id,
        "roles": list(checked.roles),
        "directories": owner.paths,
        "metadata_directory": owner.metadata_directory,
        "clean_shutdown": not owner.unclean,
        METADATA_VERSION: metadata_version_name(levels.pop(METADATA_VERSION, 0)),
        "features": {name: level for name, level in levels.items() if level},
        "voters": sorted(metadata.voter_ids),
        "quorum_epoch": metadata.leader_epoch,
        "metadata_log": [metadata.log_start_offset, metadata.log_end_offset],
        "last_snapshot": None if snapshot is None else f"{snapshot.offset}-{snapshot.epoch}",
        "brokers": sorted(image.cluster.brokers),
        "topics": sum(1 for _ in image.topics),
        "partitions_here": len(logs),
        "bytes_here": logs.bytes,
        "codecs": dict(sorted(logs.codecs.items())),
        "producers": logs.producers,
        "partitions_in_transaction": logs.open_transactions,
        "transactions": dict(sorted(coordinators.transactions.items())),
        "transactions_open": coordinators.open_transactions,
        "groups": dict(sorted(coordinators.groups.items())),
        "committed_offsets": coordinators.committed_offsets,
        "unknown_coordinator_records": coordinators.unknown_records,
        "access_control_entries": len(image.acls.entries),
        "scram_credentials": sum(1 for _ in image.scram.to_records()),
        "delegation_tokens": len(image.delegation_tokens.tokens),
        "client_quotas": len(image.client_quotas.entities),
    }


def changes(checked: Checked) -> Iterator[str]:
    """Yield the changes that the first start makes, as sentences."""
    owner, logs = checked.ownership, checked.logs
    yield "no file is converted: the formats are the same"
    for path, meta in owner.identities.items():
        if meta.directory_id is None:
            yield f"{path} gets a directory.id (KIP-858), as at a start of Kafka 3.7"
    if owner.unclean:
        yield f"the last stop was not clean in {', '.join(owner.unclean)}: the ends of all logs are read and checked"
    yield from (f"recovery: {line}" for line in logs.recovery)
    if logs.strays:
        yield f"the metadata does not know {_some(logs.strays)} any more: set aside as -stray"
    if logs.without_files:
        yield f"{_some(logs.without_files)} have no files here and begin empty; as followers they fetch from their leaders"
    if remote := remote_topics(checked.metadata):
        yield f"old segments of {_some(remote)} are read from remote storage, and go on being copied there, as its settings say"
    version = metadata_version_name(checked.metadata.image.features.metadata_version)
    yield f"metadata.version stays {version}; `ottla feature upgrade` raises it when every node can follow"


def _some(names: list[str]) -> str:
    more = len(names) - NAMES_SHOWN
    return ", ".join(names[:NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
