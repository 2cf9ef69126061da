"""What the coordinators of the node will load: groups of each kind, committed offsets, and transactional ids.

Only the keys and the last value of each are looked at, of the partitions that are here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.broker.transactions.transaction_states import IDLE, State
from ottla.node.adoption.logs import FoundLogs
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.consumer_group_records import ConsumerGroupMetadataKey
from ottla.protocol.internal_topics.coordinator_records import RecordTypes, decode_key, decode_value
from ottla.protocol.internal_topics.group_records import (
    GROUP_RECORDS,
    GroupMetadataKey,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
)
from ottla.protocol.internal_topics.share_group_records import ShareGroupMetadataKey
from ottla.protocol.internal_topics.streams_group_records import StreamsGroupMetadataKey
from ottla.protocol.internal_topics.transaction_records import TRANSACTION_RECORDS, TransactionLogValue

OFFSETS_TOPIC, TRANSACTIONS_TOPIC = "__consumer_offsets", "__transaction_state"
#: A group is of the kind of its metadata's key.
KINDS = {
    GroupMetadataKey: "classic",
    ConsumerGroupMetadataKey: "consumer",
    ShareGroupMetadataKey: "share",
    StreamsGroupMetadataKey: "streams",
}


@dataclass(slots=True)
class FoundCoordinators:
    """Numbers by kind and by state."""

    groups: Counter[str] = field(default_factory=Counter)
    committed_offsets: int = 0
    transactions: Counter[str] = field(default_factory=Counter)
    #: Records of a type or version that is not known here; coordinators skip the former, and do not load with the latter.
    unknown_records: int = 0

    @property
    def open_transactions(self) -> int:
        """Transactions whose markers are not all written."""
        idle = {state.kafka_name for state in IDLE}
        return sum(count for state, count in self.transactions.items() if state not in idle)


def read_coordinators(logs: FoundLogs) -> FoundCoordinators:
    """Reads the logs of the two internal topics."""
    found = FoundCoordinators()
    for key, _ in _last_records(logs, OFFSETS_TOPIC, GROUP_RECORDS, found):
        if (kind := KINDS.get(type(key))) is not None:
            found.groups[kind] += 1
        elif isinstance(key, (OffsetCommitKey, LegacyOffsetCommitKey)):
            found.committed_offsets += 1
    for _, value in _last_records(logs, TRANSACTIONS_TOPIC, TRANSACTION_RECORDS, found):
        if isinstance(value, TransactionLogValue):
            found.transactions[State(value.transaction_status).kafka_name] += 1
    return found


def _last_records(
    logs: FoundLogs, topic: str, types: RecordTypes, found: FoundCoordinators
) -> Iterator[tuple[object, object]]:
    """Yields each key that is not deleted, with its last value."""
    last: dict[bytes, bytes] = {}
    for log in logs.of_topic(topic):
        for batch in log.batches(log.log_start_offset):
            for record in () if batch.is_control else batch.records():
                if record.value is None:
                    last.pop(bytes(record.key or b""), None)
                else:
                    last[bytes(record.key or b"")] = bytes(record.value)
    for raw, data in last.items():
        try:
            key = decode_key(types, raw)
            yield key, decode_value(types, key, data)
        except ProtocolError:
            found.unknown_records += 1
