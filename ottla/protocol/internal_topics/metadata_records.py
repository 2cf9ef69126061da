"""The records of the metadata log, `__cluster_metadata`, and the frame around each.

A record's value is: frame version 1, key, version, then the record, the first three as unsigned varints. Which version
to write follows from metadata.version: see features.py. Partition v1 has directories (KIP-858), v2 eligible leader
replicas (KIP-966); RegisterBroker v1 controlled shutdown, v3 log directories, v4 cordoned ones (KIP-1066).
BrokerRegistrationChange is written in the lowest version that has what changed: 0 fencing, 1 controlled shutdown,
2 log directories, 3 cordoned ones.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias, get_args

from ottla.protocol.compile import decode, encoder
from ottla.protocol.errors import MalformedMessage, ProtocolError
from ottla.protocol.messages.shared_structs import EntityData, Feature, Listener
from ottla.protocol.primitives import Buffer, Pieces, read_uvarint, uvarint
from ottla.protocol.schema import ZERO_UUID, float64, info_of, int8, int16, int32, int64, message, uuid, v


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: int32 = 0
    is_migrating_zk_broker: bool = v("2+", default=False)
    incarnation_id: uuid = ZERO_UUID
    broker_epoch: int64 = 0
    end_points: list[Listener] = v(default=[])
    features: list[Feature] = v(default=[])
    rack: str | None = ""
    fenced: bool = True
    in_controlled_shutdown: bool = v("1+", default=False)
    log_dirs: list[uuid] = v("3+", tag=0, default=[])
    cordoned_log_dirs: list[uuid] | None = v("4+", tag=1, default=None)


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int32 = 0
    broker_epoch: int64 = 0


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    name: str = ""
    topic_id: uuid = ZERO_UUID


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    replicas: list[int32] = v(default=[])
    isr: list[int32] = v(default=[])
    removing_replicas: list[int32] = v(default=[])
    adding_replicas: list[int32] = v(default=[])
    leader: int32 = -1
    leader_recovery_state: int8 = v(tag=0, default=0)
    leader_epoch: int32 = -1
    partition_epoch: int32 = -1
    directories: list[uuid] = v("1+", default=[])
    eligible_leader_replicas: list[int32] | None = v("2+", tag=1, default=None)
    last_known_elr: list[int32] | None = v("2+", tag=2, default=None)


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    resource_type: int8 = 0
    resource_name: str = ""
    name: str = ""
    value: str | None = ""


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    partition_id: int32 = -1
    topic_id: uuid = ZERO_UUID
    isr: list[int32] | None = v(tag=0, default=None)
    leader: int32 = v(tag=1, default=-2)
    replicas: list[int32] | None = v(tag=2, default=None)
    removing_replicas: list[int32] | None = v(tag=3, default=None)
    adding_replicas: list[int32] | None = v(tag=4, default=None)
    leader_recovery_state: int8 = v(tag=5, default=-1)
    directories: list[uuid] | None = v("1+", tag=8, default=None)
    eligible_leader_replicas: list[int32] | None = v("2+", tag=6, default=None)
    last_known_elr: list[int32] | None = v("2+", tag=7, default=None)


@message(key=7, versions="0", flexible="0+")
class FenceBrokerRecord:
    id: int32 = 0
    epoch: int64 = 0


@message(key=8, versions="0", flexible="0+")
class UnfenceBrokerRecord:
    id: int32 = 0
    epoch: int64 = 0


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: uuid = ZERO_UUID


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    owner: str = ""
    requester: str = ""
    renewers: list[str] = v(default=[])
    issue_timestamp: int64 = 0
    max_timestamp: int64 = 0
    expiration_timestamp: int64 = 0
    token_id: str = ""


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    name: str = ""
    mechanism: int8 = 0
    salt: bytes = b""
    stored_key: bytes = b""
    server_key: bytes = b""
    iterations: int32 = 0


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str = ""
    feature_level: int16 = 0


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    entity: list[EntityData] = v(default=[])
    key: str = ""
    value: float64 = 0.0
    remove: bool = False


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: int32 = 0
    broker_epoch: int64 = -1
    next_producer_id: int64 = 0


@message(key=17, versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: int32 = 0
    broker_epoch: int64 = 0
    fenced: int8 = v(tag=0, default=0)
    in_controlled_shutdown: int8 = v("1+", tag=1, default=0)
    log_dirs: list[uuid] = v("2+", tag=2, default=[])
    cordoned_log_dirs: list[uuid] | None = v("3+", tag=3, default=None)


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    id: uuid = ZERO_UUID
    resource_type: int8 = 0
    resource_name: str = ""
    pattern_type: int8 = 0
    principal: str = ""
    host: str = ""
    operation: int8 = 0
    permission_type: int8 = 0


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: uuid = ZERO_UUID


@message(key=20, versions="0", flexible="0+")
class NoOpRecord:
    pass


@message(key=21, versions="0", flexible="0+")
class ZkMigrationStateRecord:
    zk_migration_state: int8 = 0


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: str = ""
    mechanism: int8 = 0


@message(key=23, versions="0", flexible="0+")
class BeginTransactionRecord:
    name: str | None = v(tag=0, default=None)


@message(key=24, versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(key=25, versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = v(tag=0, default=None)


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    token_id: str = ""


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    controller_id: int32 = 0
    incarnation_id: uuid = ZERO_UUID
    zk_migration_ready: bool = False
    end_points: list[Listener] = v(default=[])
    features: list[Feature] = v(default=[])


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    topic_name: str = ""


@message(key=29, versions="0", flexible="0+")
class UnregisterControllerRecord:
    controller_id: int32 = 0


FRAME_VERSION = 1

MetadataRecord: TypeAlias = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | TopicRecord
    | PartitionRecord
    | ConfigRecord
    | PartitionChangeRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | RemoveTopicRecord
    | DelegationTokenRecord
    | UserScramCredentialRecord
    | FeatureLevelRecord
    | ClientQuotaRecord
    | ProducerIdsRecord
    | BrokerRegistrationChangeRecord
    | AccessControlEntryRecord
    | RemoveAccessControlEntryRecord
    | NoOpRecord
    | ZkMigrationStateRecord
    | RemoveUserScramCredentialRecord
    | BeginTransactionRecord
    | EndTransactionRecord
    | AbortTransactionRecord
    | RemoveDelegationTokenRecord
    | RegisterControllerRecord
    | ClearElrRecord
    | UnregisterControllerRecord
)

RECORDS: dict[int | None, type[MetadataRecord]] = {info_of(cls).key: cls for cls in get_args(MetadataRecord)}


class UnknownRecord(ProtocolError):
    """A record of a newer metadata.version than this node understands."""


def encode_record(record: MetadataRecord, version: int) -> bytes:
    """Return the value of a record in the metadata log."""
    cls = type(record)
    key = info_of(cls).key
    assert key is not None
    pieces: Pieces = [_frame(key, version)]
    encoder(cls, version)(record, pieces)
    return b"".join(pieces)


@cache
def _frame(key: int, version: int) -> bytes:
    return uvarint(FRAME_VERSION) + uvarint(key) + uvarint(version)


def decode_record(value: Buffer) -> tuple[MetadataRecord, int]:
    """Return the record that a value holds, and its version."""
    try:
        frame_version, pos = read_uvarint(value, 0)
        key, pos = read_uvarint(value, pos)
        version, pos = read_uvarint(value, pos)
    except IndexError:
        raise MalformedMessage("metadata record: cut short") from None
    if frame_version != FRAME_VERSION:
        raise UnknownRecord(f"frame version {frame_version}")
    cls = RECORDS.get(key)
    if cls is None or version not in info_of(cls).versions:
        raise UnknownRecord(f"metadata record {key} v{version}")
    return decode(cls, value, version, pos), version
