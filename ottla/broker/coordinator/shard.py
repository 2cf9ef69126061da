"""The interface of the runtime to a shard, which is the state that one partition of an internal topic describes, and to its records."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

from ottla.broker.coordinator.outcome import CoordinatorRecord, Unasked
from ottla.protocol.errors import ProtocolError
from ottla.protocol.internal_topics.coordinator_records import (
    RecordTypes,
    UnknownRecord,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
)


class UnreadableValue(Exception):
    """The value of a record cannot be decoded, though its key can."""

    def __init__(self, key: object, reason: Exception) -> None:
        super().__init__(f"{key}: {reason!r}")
        self.key = key


class Shard(Protocol):
    """Hard state (what the log says) changes in the two replay methods only; everything else may change soft state."""

    def replay(self, offset: int, producer_id: int, key: Any, value: Any) -> None:
        """Apply one record; `value` None is a tombstone; `producer_id` -1 unless part of a transaction."""
        ...

    def replay_failed(self, key: Any) -> None:
        """Called while loading if the newest record of the key cannot be decoded or applied.

        Requests for the key's group or transactional id are rejected until a later record of that key can be applied;
        everything else in the partition is served. A guess at the record's content could lose an offset or an epoch.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, committed: bool) -> None:
        """Apply a control record that ends the producer's transaction."""
        ...

    def on_loaded(self, now_ms: int) -> Unasked:
        """All records are replayed and this broker leads: rebuild timers, decide what cannot wait."""
        ...

    def on_unloaded(self) -> Unasked:
        """Leadership is lost: only `replies` of the outcome count."""
        ...


class RecordCodec:
    """Bytes of a shard's records. Unknown record types are skipped when loading, so that a newer broker's survive (KIP-915)."""

    #: The types that the shard replays.
    types: ClassVar[RecordTypes]

    def version_of(self, value: Any) -> int:
        """The version in which the value is written."""
        return 0

    def current(self, key: Any, value: Any) -> CoordinatorRecord:
        """The record as the shard replays it, where an older format has another one."""
        return key, value

    def encode(self, key: object, value: object) -> tuple[bytes, bytes | None]:
        return encode_key(key), None if value is None else encode_value(value, self.version_of(value))

    def decode(self, key: bytes | memoryview, value: bytes | memoryview | None) -> CoordinatorRecord | None:
        """None for a record of an unknown type; `UnreadableValue` for a value that is malformed or of an unknown version."""
        try:
            known_key = decode_key(self.types, key)
        except UnknownRecord:
            return None
        try:
            return self.current(known_key, None if value is None else decode_value(self.types, known_key, value))
        except ProtocolError as error:
            raise UnreadableValue(self.current(known_key, None)[0], error) from error
