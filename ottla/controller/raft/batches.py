"""Record batches of the metadata log: control records to bytes and back, data records into batches, batches for listeners."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ottla.controller.raft.messages import Batch, ControlRecords, LeaderChange
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.compile import decoder, encoder
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_topics import control_messages as wire
from ottla.protocol.messages.quorum_structs import KRaftVersionFeature, Listener
from ottla.protocol.primitives import Buffer, Pieces
from ottla.protocol.records.batch import HEADER_BYTES, BatchView, iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.control import ControlType, control_batch, control_type

#: LeaderChangeMessage v1, with directory ids, is specified but neither written nor readable by Kafka 4.3.
_LEADER_CHANGE_VERSION = 0
#: At least the overhead of a record without key and headers: three varints of 5 bytes, and four of 1.
_RECORD_OVERHEAD_BYTES = 19

T = TypeVar("T")


class CommittedBatch:
    """A committed batch for a listener; its records are decoded on first access."""

    def __init__(self, view: BatchView) -> None:
        self.base_offset = view.base_offset
        self.last_offset = view.last_offset
        self.epoch = view.partition_leader_epoch
        self.append_time_ms = view.max_timestamp
        self.is_control = view.is_control
        self.size_bytes = view.size
        self._view = view

    @cached_property
    def records(self) -> list[bytes]:
        """The values of the data records, in offset order from `base_offset`. Control batches have none: `read_control` decodes them."""
        if self.is_control:
            return []
        return [record.value or b"" for record in self._view.records()]

    def __repr__(self) -> str:
        kind = "control" if self.is_control else "data"
        return f"<{kind} {self.base_offset}-{self.last_offset} epoch {self.epoch}>"


def committed_batches(records: Buffer) -> list[CommittedBatch]:
    return [CommittedBatch(view) for view in iter_batches(records)]


def data_batch(values: Iterable[bytes], *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    return build_batch([(None, value, now_ms) for value in values], base_offset=base_offset, leader_epoch=epoch)


def batch_bytes(values: Sequence[bytes]) -> int:
    """Return the size of a batch of these records, at most a few bytes per record too large."""
    return HEADER_BYTES + sum(map(len, values)) + len(values) * _RECORD_OVERHEAD_BYTES


def split(values: list[bytes], bytes_max: int) -> Iterator[list[bytes]]:
    """Split records into runs that each fit into a batch of `bytes_max`. A larger record gets a batch of its own."""
    start, size = 0, HEADER_BYTES
    for index, value in enumerate(values):
        record_bytes = len(value) + _RECORD_OVERHEAD_BYTES
        if index > start and size + record_bytes > bytes_max:
            yield values[start:index]
            start, size = index, HEADER_BYTES
        size += record_bytes
    if start < len(values):
        yield values[start:]


def control_bytes(records: ControlRecords, *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    """Encode the control batch with which a leader begins its epoch or changes the voters."""
    rows: list[tuple[ControlType, bytes]] = []
    if records.leader_change is not None:
        rows.append((ControlType.LEADER_CHANGE, _leader_change(records.leader_change)))
    rows.extend(voter_rows(records.kraft_version, records.voters))
    return control_batch(rows, timestamp=now_ms, base_offset=base_offset, leader_epoch=epoch)


def voter_rows(kraft_version: int | None, voters: VoterSet | None) -> list[tuple[ControlType, bytes]]:
    rows: list[tuple[ControlType, bytes]] = []
    if kraft_version is not None:
        rows.append((ControlType.KRAFT_VERSION, encode(wire.KRaftVersionRecord(0, kraft_version), 0)))
    if voters is not None:
        rows.append((ControlType.KRAFT_VOTERS, encode(wire.VotersRecord(0, [_wire_voter(v) for v in voters]), 0)))
    return rows


def read_control(view: BatchView) -> ControlRecords:
    """Decode a control batch; records of unknown types are ignored.

    Raises:
        KafkaError, ProtocolError: a record cannot be read.
    """
    leader_change: LeaderChange | None = None
    kraft_version: int | None = None
    voters: VoterSet | None = None
    for record in view.records():
        value = record.value or b""
        match control_type(record):
            case ControlType.LEADER_CHANGE:
                leader_change = _read_leader_change(value)
            case ControlType.KRAFT_VERSION:
                kraft_version = decode(wire.KRaftVersionRecord, value).kraft_version
            case ControlType.KRAFT_VOTERS:
                voters = _voter_set(decode(wire.VotersRecord, value).voters)
    return ControlRecords(leader_change, kraft_version, voters)


def read_batches(records: Buffer) -> tuple[Batch, ...]:
    """Convert fetched bytes into the core's batches. The bytes are copied, because the receive buffer is reused."""
    return tuple(as_batch(view) for view in iter_batches(bytes(records)))


def as_batch(view: BatchView) -> Batch:
    voters = kraft_version = None
    if view.is_control:
        control = read_control(view)
        voters, kraft_version = control.voters, control.kraft_version
    return Batch(view.base_offset, view.last_offset, view.partition_leader_epoch, view.buffer, voters, kraft_version)


def encode(message: Any, version: int) -> bytes:
    pieces: Pieces = []
    encoder(message.__plain__, version)(message, pieces)
    return b"".join(pieces)


def decode(cls: type[T], data: bytes, version: int = 0) -> T:
    message, _ = decoder(cls, version)(data, 0, len(data))
    return message


def _leader_change(change: LeaderChange) -> bytes:
    def ids(replicas: tuple[ReplicaKey, ...]) -> list[wire.LeaderChangeVoter]:
        return [wire.LeaderChangeVoter(replica.id) for replica in replicas]

    message = wire.LeaderChangeMessage(
        _LEADER_CHANGE_VERSION, change.leader.id, ids(change.voters), ids(change.granting_voters)
    )
    return encode(message, _LEADER_CHANGE_VERSION)


def _read_leader_change(value: bytes) -> LeaderChange:
    # The message begins with its own version (KIP-595).
    version = min(int.from_bytes(value[:2], "big"), 1)
    message = decode(wire.LeaderChangeMessage, value, version)

    def keys(replicas: list[wire.LeaderChangeVoter]) -> tuple[ReplicaKey, ...]:
        return tuple(ReplicaKey(replica.voter_id, replica.voter_directory_id) for replica in replicas)

    return LeaderChange(ReplicaKey(message.leader_id), keys(message.voters), keys(message.granting_voters))


def _wire_voter(voter: Voter) -> wire.Voter:
    return wire.Voter(
        voter.key.id,
        voter.key.directory_id,
        [Listener(*endpoint) for endpoint in voter.endpoints],
        KRaftVersionFeature(voter.kraft_version_min, voter.kraft_version_max),
    )


def _voter_set(voters: list[wire.Voter]) -> VoterSet:
    if len({voter.voter_id for voter in voters}) != len(voters):
        raise MalformedMessage(f"VotersRecord names a node id twice: {voters}")
    return VoterSet.of(_voter(voter) for voter in voters)


def _voter(voter: wire.Voter) -> Voter:
    return Voter(
        ReplicaKey(voter.voter_id, bytes(voter.voter_directory_id)),
        tuple(QuorumEndpoint(endpoint.name, endpoint.host, endpoint.port) for endpoint in voter.endpoints),
        voter.kraft_version_feature.min_supported_version,
        voter.kraft_version_feature.max_supported_version,
    )
