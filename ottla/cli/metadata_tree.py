"""The metadata of a cluster as a tree of directories and texts, from a snapshot or a segment of the metadata log.

The names and texts are those of Kafka's metadata shell. As in that shell, salts and keys of SCRAM credentials are in the tree:
its users can read the file anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeAlias

from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import WITHOUT_STATE, MetadataDelta, MetadataImage
from ottla.controller.metadata.topics import RECOVERED
from ottla.protocol.features import metadata_version_name
from ottla.protocol.internal_topics.metadata_records import decode_record
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.records.batch import BatchView
from ottla.protocol.releases import METADATA_VERSION
from ottla.storage.files import Files
from ottla.storage.log_files import mapped_file, spans

if TYPE_CHECKING:
    from ottla.controller.metadata.cluster import (
        BrokerRegistration,
        ControllerRegistration,
        FeatureRange,
        RegisteredEndpoint,
    )
    from ottla.controller.metadata.topics import PartitionRegistration, TopicImage
    from ottla.server.authorization.acl import AccessControlEntry

#: A directory with its entries by name, or the text of a file.
Node: TypeAlias = "Mapping[str, Node] | str"

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RESOURCES = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
PATTERNS = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
OPERATIONS = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
PERMISSIONS = ("UNKNOWN", "ANY", "DENY", "ALLOW")
MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
QUOTA_NAMES = {"client-id": "clientId", "ip": "ip", "user": "user"}
NO_TIME = 0


def read_image(files: Files, path: str) -> tuple[MetadataImage, int]:
    """Replay a file. Return the metadata, and the time of the last record in it.

    Raises:
        KafkaError, ProtocolError: the file is damaged, or of a newer Kafka.
    """
    delta, offset, epoch, time_ms = MetadataDelta(MetadataImage()), -1, -1, NO_TIME
    with mapped_file(files, path) as view:
        for position, _ in spans(view):
            batch = BatchView(view, position)
            if batch.is_control:
                continue
            offset, epoch, time_ms = batch.last_offset, batch.partition_leader_epoch, batch.max_timestamp
            for record in batch.iter_records():
                message, _ = decode_record(record.value or b"")
                if type(message) not in WITHOUT_STATE:
                    delta.replay(message)
    return delta.apply(offset, epoch), time_ms


def _version_text(level: int) -> str:
    return f"Optional[{metadata_version_name(level)}]" if level else "Optional.empty"


def tree(image: MetadataImage, time_ms: int) -> Node:
    """Return the directory `image`."""
    levels = {name: level for name, level in image.features.levels.items() if name != METADATA_VERSION}
    features = {f"finalized_{name}": str(level) for name, level in levels.items()}
    return {
        "acls": {"byId": {uuid_to_str(key): _acl_text(entry) for key, entry in image.acls.entries.items()}},
        "clientQuotas": {
            _quota_name(dict(entity)): {key: _double(value) for key, value in quotas.items()}
            for entity, quotas in image.client_quotas.entities.items()
        },
        "cluster": {
            "brokers": {str(key): _broker_text(row) for key, row in image.cluster.brokers.items()},
            "controllers": {str(key): _controller_text(row) for key, row in image.cluster.controllers.items()},
        },
        "configs": {
            _resource_name(kind, name): dict(values) for (kind, name), values in image.configs.resources.items()
        },
        "delegationToken": {
            key: (
                f"DelegationTokenDatatokenId={key}(owner={token.owner}(tokenRequester={token.requester}"
                f"(renewers=[{', '.join(token.renewers)}], issueTimestamp={token.issue_timestamp_ms},"
                f" maxTimestamp={token.max_timestamp_ms}), expiryTimestamp={token.expiration_timestamp_ms}"
            )
            for key, token in image.delegation_tokens.tokens.items()
        },
        "features": {"metadataVersion": _version_text(image.features.metadata_version), **features},
        "producerIds": {"nextProducerId": str(image.producer_ids.next_producer_id)},
        "provenance": _provenance_text(image, time_ms),
        "scram": {name: _credentials(image, number) for name, number in MECHANISMS.items()},
        "topics": {
            "byId": {uuid_to_str(topic.id): _topic(topic) for topic in image.topics},
            "byName": {topic.name: _topic(topic) for topic in image.topics},
        },
    }


def _provenance_text(image: MetadataImage, time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    text = f"{moment:%Y-%m-%dT%H:%M:%S}" + (f".{time_ms % 1000:03d}".rstrip("0") if time_ms % 1000 else "")
    return f"offset {image.offset}, epoch {image.epoch}, time {text}Z[UTC]"


def _topic(topic: TopicImage) -> Node:
    partitions = {str(index): _partition_text(part) for index, part in topic.partitions.items()}
    return {"name": topic.name, "id": uuid_to_str(topic.id), **partitions}


def _list(values: Iterable[object]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _partition_text(part: PartitionRegistration) -> str:
    state = "RECOVERED" if part.leader_recovery_state == RECOVERED else "RECOVERING"
    return (
        f"PartitionRegistration(replicas={_list(part.replicas)}, directories={_list(map(uuid_to_str, part.directories))},"
        f" isr={_list(part.isr)}, removingReplicas={_list(part.removing_replicas)},"
        f" addingReplicas={_list(part.adding_replicas)}, elr={_list(part.elr)}, lastKnownElr={_list(part.last_known_elr)},"
        f" leader={part.leader}, leaderRecoveryState={state}, leaderEpoch={part.leader_epoch},"
        f" partitionEpoch={part.partition_epoch})"
    )


def _endpoints(endpoints: Mapping[str, RegisteredEndpoint]) -> str:
    return _list(
        f"Endpoint(listenerName='{row.name}', securityProtocol={PROTOCOLS[row.security_protocol]}, host='{row.host}',"
        f" port={row.port})"
        for _, row in sorted(endpoints.items())
    )


def _features(features: Mapping[str, FeatureRange]) -> str:
    rows = (
        f"{name}: {low}" if low == high else f"{name}: {low}-{high}" for name, (low, high) in sorted(features.items())
    )
    return f"{{{', '.join(rows)}}}"


def _broker_text(row: BrokerRegistration) -> str:
    rack = "Optional.empty" if row.rack is None else f"Optional[{row.rack}]"
    cordoned = "null" if row.cordoned_directories is None else _list(map(uuid_to_str, row.cordoned_directories))
    return (
        f"BrokerRegistration(id={row.id}, epoch={row.epoch}, incarnationId={uuid_to_str(row.incarnation_id)},"
        f" listeners={_endpoints(row.endpoints)}, supportedFeatures={_features(row.features)}, rack={rack},"
        f" fenced={_flag(row.fenced)}, inControlledShutdown={_flag(row.in_controlled_shutdown)},"
        f" isMigratingZkBroker={_flag(row.is_migrating_zk_broker)}, directories={_list(map(uuid_to_str, row.directories))},"
        f" cordonedDirectories={cordoned})"
    )


def _controller_text(row: ControllerRegistration) -> str:
    return (
        f"ControllerRegistration(id={row.id}, incarnationId={uuid_to_str(row.incarnation_id)},"
        f" zkMigrationReady={_flag(row.zk_migration_ready)}, listeners={_endpoints(row.endpoints)},"
        f" supportedFeatures={_features(row.features)})"
    )


def _acl_text(entry: AccessControlEntry) -> str:
    return (
        f"StandardAcl[resourceType={RESOURCES[entry.resource_type]}, resourceName={entry.resource_name},"
        f" patternType={PATTERNS[entry.pattern_type]}, principal={entry.principal}, host={entry.host},"
        f" operation={OPERATIONS[entry.operation]}, permissionType={PERMISSIONS[entry.permission_type]}]"
    )


def _quota_name(entity: Mapping[str, str | None]) -> str:
    """Return `clientId(x)_user(y)`. Kafka prints the default entity as `null`, and no directory of that name could be opened."""
    escaped = str.maketrans({"\\": "\\\\", "(": "\\(", ")": "\\)"})
    rows = [
        f"{QUOTA_NAMES[kind]}({name.translate(escaped)})" for kind, name in sorted(entity.items()) if name is not None
    ]
    return "_".join(rows)


def _double(value: float) -> str:
    return repr(float(value))


def _resource_name(kind: int, name: str) -> str:
    text = ResourceType(kind).name
    return f"{text}:{name}" if name else text


def _credentials(image: MetadataImage, mechanism: int) -> Node:
    return {
        user: (
            f"ScramCredentialData(salt={row.salt.hex()}, storedKey={row.stored_key.hex()}, serverKey={row.server_key.hex()},"
            f" iterations={row.iterations})"
        )
        for (number, user), row in image.scram.credentials.items()
        if number == mechanism
    }
