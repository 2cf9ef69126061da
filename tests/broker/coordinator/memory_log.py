"""A partition log in memory and a clock that only tests move: what a coordinator stands on, without a broker."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from struct import pack_into

from ottla.broker.coordinator.partition_log import TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.batch import BatchView, iter_batches
from tests.protocol.records.reference import crc_is_valid


class MemoryLog:
    """Commits at once, unless `hold` is set; refuses appends with `refuse`."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, list[bytes]] = {}
        self.committed: dict[TopicPartition, int] = {}
        self.waiting: list[tuple[TopicPartition, int, Callable[[], None]]] = []
        self.hold = False
        self.refuse: KafkaError | None = None
        self.bytes_max = 1_048_588

    def append(self, tp: TopicPartition, batches: bytes, transaction_version: int = 0) -> int:
        if self.refuse is not None:
            raise self.refuse
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
        """What is not committed is gone, as after an unlucky election."""
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


class _Handle:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Both clocks start at fixed, different times; `advance` runs what is due, in order."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = 0
        self.wall_at_start_ms = wall_ms
        self._queue: list[tuple[int, int, _Handle, Callable[[], object]]] = []
        self._sequence = 0

    def wall_ms(self) -> int:
        return self.wall_at_start_ms + self.now_ms

    def mono_ms(self) -> int:
        return self.now_ms

    def mono_ns(self) -> int:
        return self.now_ms * 1_000_000

    def call_later(self, delay_ms: float, callback: Callable[[], object]) -> _Handle:
        handle = _Handle()
        self._sequence += 1
        heappush(self._queue, (self.now_ms + int(delay_ms), self._sequence, handle, callback))
        return handle

    def advance(self, by_ms: int) -> None:
        until_ms = self.now_ms + by_ms
        while self._queue and self._queue[0][0] <= until_ms:
            at_ms, _, handle, callback = heappop(self._queue)
            self.now_ms = max(self.now_ms, at_ms)
            if not handle.cancelled:
                callback()
        self.now_ms = until_ms

    def turn(self) -> None:
        """One turn of a loop: what is due now, and nothing that is scheduled meanwhile."""
        due = sorted(entry[:2] for entry in self._queue if entry[0] <= self.now_ms)
        for _ in due:
            _, _, handle, callback = heappop(self._queue)
            if not handle.cancelled:
                callback()
