"""A partition log in memory, on which a coordinator runs without a broker."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack_into

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, iter_batches
from tests.protocol.records.reference import crc_is_valid


class MemoryLog:
    """A log that commits at once, unless `hold` is set, and rejects appends with the error `refuse`."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.waiting: list[tuple[TopicPartition, int, Callable[[], None]]] = []
        self.hold = False
        self.refuse: KafkaError | None = None
        self.bytes_max = 1_048_588

    def append(self, tp: TopicPartition, batches: bytes, transaction_version: int = 0) -> int:
        if self.refuse is not None:
            # A new exception each time: the traceback of a single one would grow with each use, and with it the report of a
            # failure.
            raise KafkaError(self.refuse.code, self.refuse.message)
        offset = self.end_offset(tp)
        for view in iter_batches(batches):
            assert crc_is_valid(view)
            if view.size > self.bytes_max:
                raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
            batch = bytearray(view.buffer)
            pack_into(">q", batch, 0, offset)
            self.batches.setdefault(tp, []).append(bytes(batch))
            offset += view.last_offset_delta + 1
        if not self.hold:
            self.release(tp)
        return offset - 1

    def release(self, tp: TopicPartition) -> None:
        """Commit everything."""
        self.committed[tp] = self.end_offset(tp)
        due = [entry for entry in self.waiting if entry[0] == tp]
        self.waiting = [entry for entry in self.waiting if entry[0] != tp]
        for _, _, callback in due:
            callback()

    def truncate(self, tp: TopicPartition) -> None:
        """Lose all records that are not committed, as after an unlucky election."""
        committed = self.committed.get(tp, 0)
        self.batches[tp] = [b for b in self.batches.get(tp, ()) if BatchView(memoryview(b)).next_offset <= committed]
        self.waiting = [entry for entry in self.waiting if entry[0] != tp]

    def high_watermark(self, tp: TopicPartition) -> int:
        return self.committed.get(tp, 0)

    def when_committed(self, tp: TopicPartition, offset: int, callback: Callable[[], None]) -> None:
        assert offset >= self.high_watermark(tp)
        self.waiting.append((tp, offset, callback))

    def start_offset(self, tp: TopicPartition) -> int:
        batches = self.batches.get(tp)
        return BatchView(memoryview(batches[0])).base_offset if batches else 0

    def end_offset(self, tp: TopicPartition) -> int:
        batches = self.batches.get(tp)
        return BatchView(memoryview(batches[-1])).next_offset if batches else 0

    def read(self, tp: TopicPartition, offset: int, max_bytes: int) -> bytes:
        out = b""
        for batch in self.batches.get(tp, ()):
            if BatchView(memoryview(batch)).last_offset < offset:
                continue
            if out and len(out) + len(batch) > max_bytes:
                break
            out += batch
        return out

    def max_batch_bytes(self, tp: TopicPartition) -> int:
        return self.bytes_max
