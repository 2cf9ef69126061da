"""What appends and reads answer."""

from __future__ import annotations

from typing import NamedTuple

NO_BYTES = memoryview(b"")


class Appended(NamedTuple):
    """What became of an append. For a duplicate: what its first append was told."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 with CreateTime
    log_start_offset: int
    duplicate: bool = False


class Read(NamedTuple):
    """Whole batches; `records` stays valid as long as it is held."""

    records: memoryview
    first_batch_offset: int  # base offset of the first batch, or the offset asked for when there is none
    next_offset: int  # the first offset not in `records`: where the next read goes on
