"""The results of appends and reads."""

from __future__ import annotations

from typing import NamedTuple

NO_BYTES = memoryview(b"")


class Appended(NamedTuple):
    """The result of an append. A duplicate gets the result of the first append."""

    first_offset: int
    last_offset: int
    log_append_time: int  # -1 with CreateTime
    log_start_offset: int
    duplicate: bool = False


class Read(NamedTuple):
    """Complete batches; `records` stays valid as long as a reference to it exists."""

    records: memoryview
    first_batch_offset: int  # base offset of the first batch, or the requested offset if there is none
    next_offset: int  # the first offset not in `records`: where the next read continues
