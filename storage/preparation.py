"""What a leader does to a produced batch before it is appended where the topic needs its records: check them, compress anew.

A batch of a few bytes can hold millions of records, so this is work in turns (`protocol.work`). `Log.append` does what fits
into one turn by itself; for the rest its caller runs `prepare` and appends with the outcome.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.convert import recompressing
from ottla.protocol.records.validate import RecordRules, check_records
from ottla.protocol.work import Turn, Work


class Preparation(NamedTuple):
    """What a topic's configuration asks for; codec None: as the producer chose."""

    rules: RecordRules
    codec: int | None
    level: int | None

    def asks(self, codec: int) -> bool:
        """Whether a batch of this codec has to be prepared."""
        return self.rules.needs_records or (self.codec is not None and self.codec != codec)


class Prepared(NamedTuple):
    """The batch as it is to be appended, or why it must not be; None: as it came, and its errand has been run."""

    preparation: Preparation
    outcome: memoryview | KafkaError | None


def prepare(batch: BatchView, preparation: Preparation, now_ms: int, turn: Turn) -> Work[memoryview]:
    """The batch that is to be appended. After the first yield its bytes must stay as they are.

    Raises:
        KafkaError: the batch must be refused.
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
