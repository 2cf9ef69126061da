"""Record batches for the broker's tests."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord

TIMESTAMP_MS = 1_700_000_000_000


def batch(values: Sequence[bytes], *, timestamp: int = TIMESTAMP_MS, **options: int) -> bytes:
    """Return one batch. `options` are those of build_batch, such as producer_id and base_sequence."""
    return build_batch([NewRecord(None, value, timestamp) for value in values], **options)
