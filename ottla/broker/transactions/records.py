"""Records of `__transaction_state` as bytes: value v1 since transaction.version 1, which adds tagged fields (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.coordinator.outcome import CoordinatorRecord
from ottla.broker.coordinator.shard import UnreadableValue
from ottla.protocol.errors import ProtocolError
from ottla.protocol.features import transaction_log_value_version
from ottla.protocol.internal_topics.coordinator_records import (
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)
from ottla.protocol.internal_topics.transaction_records import TRANSACTION_RECORDS, TransactionLogValue


class TransactionRecordCodec:
    """Codec of the transactions' records; `transaction_version()` is the cluster's finalized level."""

    def __init__(self, transaction_version: Callable[[], int]) -> None:
        self._transaction_version = transaction_version

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        if value is None:
            return encode_key(key), None
        version = transaction_log_value_version(self._transaction_version())
        if version == 0:
            assert isinstance(value, TransactionLogValue)
            # Fields that the older format lacks are dropped from memory too, so that the state equals the replay of the log.
            value.previous_producer_id = value.next_producer_id = -1
            value.client_transaction_version = 0
        return encode_key(key), encode_value(value, version)

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
        try:
            known_key = decode_key(TRANSACTION_RECORDS, key)
        except UnknownRecord:
            return None
        try:
            return known_key, None if value is None else decode_value(TRANSACTION_RECORDS, known_key, value)
        except ProtocolError as error:
            raise UnreadableValue(known_key, error) from error
