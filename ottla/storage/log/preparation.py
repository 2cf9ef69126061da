"""Preparation of a produced batch before its append, if the topic needs its records: validation and recompression.

A batch of a few bytes can hold millions of records, so this is work in turns (`protocol.work`). `Log.append` prepares batches
that fit into one turn; for others its caller runs `prepare` and appends with the outcome.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.convert import TARGET_CODECS, recompressing
from ottla.protocol.records.validate import RecordRules, check_records
from ottla.protocol.work import TooLong, Turn, Work, do_at_once, do_now
from ottla.storage.log_config import LogConfig


class Preparation(NamedTuple):
    """The requirements of a topic's configuration. If codec is None, the producer's codec stays."""

    rules: RecordRules
    codec: int | None
    level: int | None

    @classmethod
    def of(cls, config: LogConfig) -> Preparation:
        rules = RecordRules(
            max_message_bytes=config.max_message_bytes,
            log_append_time=config.log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            compacted=config.compact,
            check_records=config.validate_records,
            max_decompressed_bytes=config.max_decompressed_message_bytes,
        )
        codec = TARGET_CODECS[config.compression_type]
        return cls(rules, codec, None if codec is None else config.compression_level(codec))

    @property
    def is_needed(self) -> bool:
        """True if the configuration requires that some batches are prepared."""
        return self.rules.needs_records or self.codec is not None

    def asks(self, codec: int) -> bool:
        """Returns True if a batch of this codec must be prepared."""
        return self.rules.needs_records or (self.codec is not None and self.codec != codec)


class Prepared(NamedTuple):
    """The batch to append, or the error; None: the batch is appended unchanged, and its disk job has been run."""

    preparation: Preparation
    outcome: memoryview | KafkaError | None


def prepare(batch: BatchView, preparation: Preparation, now_ms: int, turn: Turn) -> Work[memoryview]:
    """Returns the batch to append. The bytes of `batch` must not change before the work is done.

    Raises:
        KafkaError: the batch is invalid.
    """
    rules, codec, level = preparation
    payload: bytes | None = None
    if rules.needs_records:
        payload = yield from check_records(batch, rules, now_ms, turn)
    if codec is None or codec == batch.compression:
        return batch.buffer
    records = yield from recompressing(
        batch,
        codec,
        level,
        turn,
        payload=payload,
        max_bytes=rules.max_decompressed_bytes,
        batch_bytes_max=rules.max_message_bytes,
    )
    return memoryview(records)


def prepared_batch(
    view: memoryview, preparation: Preparation, now_ms: int, prepared: Prepared | Turn | None
) -> memoryview:
    """Returns the batch to append: it is prepared here, if it was not before and the turn is long enough.

    Raises:
        KafkaError: the batch is invalid.
        TooLong: it must be prepared first.
    """
    if prepared is None:
        return do_now(prepare(BatchView(view), preparation, now_ms, Turn()))
    if isinstance(prepared, Turn):
        return do_at_once(prepare(BatchView(view), preparation, now_ms, prepared))
    if prepared.preparation is not preparation:
        raise TooLong  # the configuration has changed since the batch was prepared
    if isinstance(prepared.outcome, KafkaError):
        raise prepared.outcome
    assert prepared.outcome is not None, "the codec asks for it, as it did then"
    return prepared.outcome
