"""Records of the internal topics and their replay: groups, transactions, metadata.

An input is a small log: entries of a kind, a key and a value, each with its length. The loaded state is then used as a
coordinator uses it, and the records that it decides to write must be loadable, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from ottla.broker.coordinator.shard import UnreadableValue
from ottla.broker.coordinator.timers import Timers
from ottla.broker.groups import deletion, group_coordinator_shard, offsets
from ottla.broker.groups import group_descriptions as describe
from ottla.broker.groups.group import GroupRecordCodec
from ottla.broker.groups.group_config import GroupCoordinatorConfig
from ottla.broker.groups.group_coordinator_shard import GroupCoordinatorShard
from ottla.broker.groups.group_metadata_manager import GroupCounts
from ottla.broker.groups.group_stories import GroupStories
from ottla.broker.transactions import transaction_coordinator as describe_transactions
from ottla.broker.transactions.transaction import TransactionRecordCodec
from ottla.broker.transactions.transaction_shard import TransactionConfig, TransactionShard
from ottla.broker.transactions.transaction_stories import TransactionStories
from ottla.controller.decisions.features import bootstrap_records
from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, MetadataDelta
from ottla.protocol.compile import decode
from ottla.protocol.errors import KafkaError, ProtocolError
from ottla.protocol.internal_topics import metadata_records as metadata
from ottla.protocol.internal_topics.control_messages import ConsumerProtocolSubscription
from ottla.protocol.internal_topics.coordinator_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    encode_key,
    encode_value,
)
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup
from ottla.protocol.schema import info_of
from tests.broker.groups.cluster import cluster_of
from tests.fuzz.target import Target, Wrong, equal
from tests.protocol.catalog import encode_versioned, golden

NOW_MS = 1_700_000_000_000
PRODUCER_ID = 7
RECORD, TOMBSTONE, COMMIT, ABORT = range(4)
TRANSACTIONAL = 4
#: A metadata.version in which every record has all of its fields.
NEWEST = 1000


class Entry(NamedTuple):
    kind: int
    producer_id: int
    key: bytes
    value: bytes | None


def entries(data: bytes) -> Iterator[Entry]:
    pos = 0
    while pos + 3 <= len(data):
        how, key_bytes, value_bytes = data[pos], data[pos + 1], data[pos + 2] * (1 + 3 * (data[pos] >> 7))
        pos += 3
        key, value = data[pos : pos + key_bytes], data[pos + key_bytes : pos + key_bytes + value_bytes]
        kind = how & 3
        yield Entry(kind, PRODUCER_ID if how & TRANSACTIONAL else -1, key, None if kind == TOMBSTONE else value)
        pos += key_bytes + value_bytes


def entry(how: int, key: bytes, value: bytes = b"") -> bytes:
    """Return the bytes of an entry. The length of a longer value is a multiple of four."""
    if len(value) > 255:
        how, size = how | 128, -(-len(value) // 4)
    else:
        size = len(value)
    return bytes((how, len(key), size)) + key + value if len(key) < 256 > size else b""


class Shard(NamedTuple):
    """A shard and its codec, used as in `broker.coordinator.shard`: an unreadable record only affects the object of its key."""

    shard: Any
    codec: Any

    def load(self, log: Iterable[Entry]) -> None:
        for offset, (kind, producer_id, key, value) in enumerate(log):
            if kind in (COMMIT, ABORT):
                self.shard.replay_end_transaction_marker(PRODUCER_ID, kind == COMMIT)
                continue
            try:
                decoded = self.codec.decode(key, value)
            except UnreadableValue as error:
                self.shard.replay_failed(error.key)
                continue
            if decoded is None:
                continue
            self._again(*decoded)
            try:
                self.shard.replay(offset, producer_id, *decoded)
            except Exception:
                self.shard.replay_failed(decoded[0])

    def _again(self, key: Any, value: Any) -> None:
        try:
            equal(self.codec.decode(*self.codec.encode(key, value)), (key, value), "the record read again")
        except ProtocolError as error:
            raise Wrong(f"what was read cannot be written: {error}") from error

    def decided(self, records: Iterable[Any]) -> None:
        """Write, read and replay the records that a decision wants to write."""
        for key, value in list(records):
            self._again(key, value)
            self.shard.replay(1 << 40, -1, key, value)


def groups(data: bytes) -> None:
    timers = Timers(lambda: 0, lambda deadline_ms: None)
    shard = GroupCoordinatorShard(
        timers,
        GroupCoordinatorConfig(),
        lambda: NOW_MS,
        lambda: "x",
        cluster_of(),
        GroupCounts(),
        lambda: NOW_MS,
        GroupStories("group", lambda: NOW_MS),
    )
    loading = Shard(shard, GroupRecordCodec())
    loading.load(entries(data))
    loading.decided(shard.on_loaded(NOW_MS).records)
    names = [*shard.groups]
    describe.CONSUMER_GROUPS.of(shard, names)
    describe.describe(shard, names, True)
    for group in describe.groups_of(shard, set()):
        describe.listed(group, set())
    for name in names:
        with suppress(KafkaError):  # the error of an unreadable group
            offsets.fetch(shard, OffsetFetchRequestGroup(group_id=name, topics=None), True)
    loading.decided(offsets.on_topics_deleted(shard, NOW_MS, frozenset({"t"})).records)
    loading.decided(group_coordinator_shard.expire(shard, NOW_MS).records)
    loading.decided(deletion.delete(shard, NOW_MS, names).records)
    shard.on_unloaded()


class Coordinating:
    """A coordinator that does not carry out what a shard starts."""

    stories = TransactionStories("transactional id", lambda: NOW_MS)

    def transaction_version(self) -> int:
        return 2

    def complete(self, transaction: Any) -> None:
        assert transaction.producer_after_end

    def abort(self, transaction: Any) -> None:
        pass

    def unwritten_markers(self, transactional_id: str) -> None:
        return None


def transactions(data: bytes) -> None:
    timers = Timers(lambda: 0, lambda deadline_ms: None)
    shard = TransactionShard(timers, TransactionConfig(), lambda: NOW_MS, Coordinating())
    loading = Shard(shard, TransactionRecordCodec(lambda: 2))
    loading.load(entries(data))
    outcome = shard.on_loaded(NOW_MS)
    if outcome.committed is not None:
        outcome.committed()
    for name, transaction in list(shard.transactions.items()):
        describe_transactions.described(shard, name)
        loading.decided([transaction.record()])
        equal(shard.transactions[name].record(), transaction.record(), "the transaction replayed from its own record")
    shard.abort_timed_out(NOW_MS)
    loading.decided(shard.remove_expired(NOW_MS).records)


def metadata_log(data: bytes) -> None:
    """Replay records into an image: its snapshot gives the same image, and the controller's index can be built from it."""
    delta = MetadataDelta(EMPTY)
    pos = 0
    while pos < len(data):
        stop = pos + 1 + data[pos]
        record, _ = metadata.decode_record(data[pos + 1 : stop])
        delta.replay(record)
        pos = stop
    image = delta.apply(1, 1)
    again = MetadataDelta(EMPTY)
    snapshot = encode_metadata(image.to_records(), NEWEST)
    for value in snapshot:
        again.replay(metadata.decode_record(value)[0])
    again.finish_snapshot()
    # The comparison is by bytes, because a quota may be NaN, which does not equal itself.
    equal(sorted(encode_metadata(again.apply(1, 1).to_records(), NEWEST)), sorted(snapshot), "a snapshot's snapshot")
    ClusterIndex(image)


# Seeds


def group_seeds() -> Iterator[bytes]:
    subscription = encode_versioned(ConsumerProtocolSubscription(topics=["t", "u"]), 1)
    member = MemberMetadata(
        member_id="m",
        client_id="c",
        client_host="/h",
        rebalance_timeout=5,
        session_timeout=9,
        subscription=subscription,
    )
    group = encode_value(
        GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member]), 3
    )
    key = encode_key(GroupMetadataKey(group="g"))
    commit_key = encode_key(OffsetCommitKey(group="g", topic="t", partition=1))
    commit = encode_value(OffsetCommitValue(offset=5, metadata="x", commit_timestamp=NOW_MS), 4)
    yield entry(RECORD, key, group) + entry(RECORD, commit_key, commit)
    yield entry(RECORD | TRANSACTIONAL, commit_key, commit) + entry(COMMIT, b"") + entry(TOMBSTONE, key)
    yield entry(RECORD | TRANSACTIONAL, commit_key, commit) + entry(ABORT, b"") + entry(TOMBSTONE, commit_key)
    yield from _golden_entries(GROUP_RECORDS)


def transaction_seeds() -> Iterator[bytes]:
    key = encode_key(TransactionLogKey(transactional_id="t"))
    for status in range(7):
        value = TransactionLogValue(
            producer_id=7,
            producer_epoch=1,
            transaction_timeout_ms=1000,
            transaction_status=status,
            transaction_partitions=[PartitionsSchema(topic="t", partition_ids=[0, 2])],
            transaction_start_timestamp_ms=NOW_MS,
        )
        yield entry(RECORD, key, encode_value(value, status % 2)) + entry(TOMBSTONE, key) * (status & 1)
    yield from _golden_entries(TRANSACTION_RECORDS)


def _golden_entries(types: dict[int, tuple[type[Any], type[Any]]]) -> Iterator[bytes]:
    for kind, (key_class, value_class) in types.items():
        keys = [case.data for case in golden() if case.cls is key_class]
        for case in golden():
            if case.cls is value_class and keys:
                key = struct.pack(">h", kind) + keys[0]
                yield entry(RECORD, key, struct.pack(">h", case.version) + case.data)


def metadata_seeds() -> Iterator[bytes]:
    topic_id, broker = bytes(15) + b"\1", bytes(15) + b"\2"
    story = [
        metadata.RegisterBrokerRecord(broker_id=1, incarnation_id=broker, broker_epoch=3, log_dirs=[broker]),
        metadata.UnfenceBrokerRecord(id=1, epoch=3),
        metadata.TopicRecord(name="t", topic_id=topic_id),
        metadata.PartitionRecord(
            partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0, partition_epoch=0,
            directories=[broker],
        ),
        metadata.PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[1], leader=-1),
        metadata.ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"),
        metadata.RemoveTopicRecord(topic_id=topic_id),
    ]  # fmt: skip
    for end in range(1, len(story) + 1):
        values = encode_metadata([*bootstrap_records(1)[:1], *story[:end]], NEWEST)
        yield b"".join(bytes((len(value),)) + value for value in values)
    for case in golden():
        if metadata.RECORDS.get(getattr(info_of(case.cls), "key", None)) is case.cls:
            value = metadata.encode_record(decode(case.cls, case.data, case.version), case.version)
            if len(value) < 256:
                yield bytes((len(value),)) + value


TARGETS = [
    Target("groups", groups, group_seeds, (ProtocolError, KafkaError), bytes_max=1024, share=8),
    Target("transactions", transactions, transaction_seeds, (ProtocolError, KafkaError), bytes_max=512, share=8),
    # A log with contradictions stops the node by an assertion, before the node uses any of it.
    Target("metadata", metadata_log, metadata_seeds, (ProtocolError, AssertionError), bytes_max=1024, share=12),
]
