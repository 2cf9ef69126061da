"""The batches whose records become rows: complete ones with a valid CRC, in the range, no control batches, none of aborted
transactions.

It has no I/O: the bytes come from a Fetch or from a segment file. A Fetch may begin before its offset and end in the middle of
a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, batch_size, check_batch
from ottla.protocol.records.control import end_txn_marker

#: Producer id and first offset of an aborted transaction.
Aborted = tuple[int, int]


class ColumnsError(Exception):
    """An error that says what happened and what to do. `code` is Kafka's error if there is one."""

    def __init__(self, what: str, remedy: str | None = None, code: int = ErrorCode.NONE) -> None:
        super().__init__(f"{what}; {remedy}" if remedy else what)
        self.code = code


class BatchFilter:
    """Follows the aborted transactions of one partition over its batches, in the order of the log."""

    def __init__(self, place: str, start: int, end: int, *, with_control: bool = False) -> None:
        """Take the range of offsets that is read: `end` is exclusive. Control batches are yielded only `with_control`."""
        self.place = place
        self.position = start
        #: Records below this offset are no rows. It rises when offsets are lost, even to the middle of a batch.
        self.floor = start
        self.end = end
        self._with_control = with_control
        self._upcoming: list[Aborted] = []
        self._open: set[int] = set()

    @property
    def is_done(self) -> bool:
        return self.position >= self.end

    def lose(self, first: int) -> None:
        """Skip all offsets before `first`, which the log no longer has."""
        self.position = self.floor = min(first, self.end)

    def announce(self, aborted: Iterable[Aborted]) -> None:
        """Take the aborted transactions that overlap with the next bytes; those that are known are ignored."""
        rows = {(first, producer) for producer, first in aborted}
        self._upcoming = [(producer, first) for first, producer in sorted(rows)]

    def batches(self, data: memoryview) -> Iterator[BatchView]:
        """Yield the batches with rows, and move the position behind each batch. Raises ColumnsError for damaged bytes."""
        position, end = 0, len(data)
        while not self.is_done:
            try:
                size = batch_size(data, position, end)
                if size is None:
                    return
                check_batch(data, position, position + size)
            except KafkaError as fault:
                raise ColumnsError(
                    f"{self.place} at offset {self.position} is damaged: {fault}",
                    "read another replica, or start behind it: startingOffsets",
                    fault.code,
                ) from None
            batch = BatchView(data, position)
            position += size
            if batch.next_offset <= self.position:
                continue  # a fetch starts with the batch that holds its offset, or one before it
            self.position = batch.next_offset
            if self._is_visible(batch):
                yield batch

    def _is_visible(self, batch: BatchView) -> bool:
        while self._upcoming and self._upcoming[0][1] <= batch.last_offset:
            self._open.add(self._upcoming.pop(0)[0])
        if batch.is_control:
            marker = end_txn_marker(batch)
            if marker is not None and not marker.committed:
                self._open.discard(batch.producer_id)
            return self._with_control
        if batch.is_transactional and batch.producer_id in self._open:
            return False
        return batch.count > 0 and batch.base_offset < self.end
