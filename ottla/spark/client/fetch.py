"""A range of offsets of one partition, read from its leader as batches.

While a response is decoded, the next Fetch is in flight.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from ottla.client.errors import passes
from ottla.columns.batches import BatchFilter
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.protocol.records.batch import BatchView, batch_size
from ottla.protocol.schema import ZERO_UUID
from ottla.spark.client.cluster import RETRY_BACKOFF_SECONDS, BlockingCluster
from ottla.spark.client.connection import SparkConnection
from ottla.spark.client.offsets import EARLIEST, READ_COMMITTED, list_offsets
from ottla.spark.errors import ConnectionLost, ConnectorError, check

FETCH_BYTES_MAX = 4 * 1024 * 1024
#: From version 13 on Fetch has topic ids in place of names. For a broker before Kafka 3.1 names are used.
_FETCH_VERSION_MAX, _NAMES_VERSION_MAX = 13, 12
_WAIT_MS_MAX = 500
#: The leader knows no topic with this id, or knows the name with another id.
OTHER_TOPIC = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
#: After this many responses in a row without a batch, from a leader that has the range, the rest of the range counts as a gap.
_EMPTY_MAX = 5
#: A task fails after this time without progress: kafkaConsumer.pollTimeoutMs of the JVM source.
PROGRESS_SECONDS_MAX = 120.0


class RangeReader:
    """Reads [start, end) of a partition.

    With `fail_on_loss` missing offsets raise ConnectorError, otherwise they are skipped. With a `topic_id` nothing is read from
    another topic of the same name: if the topic was created again, all offsets are missing.
    """

    def __init__(
        self,
        cluster: BlockingCluster,
        place: tuple[str, int],
        start: int,
        end: int,
        isolation: int,
        *,
        fail_on_loss: bool,
        topic_id: bytes | None = None,
        with_control: bool = False,
    ) -> None:
        self.cluster = cluster
        self.place = place
        self.name = f"{place[0]}-{place[1]}"
        self.filter = BatchFilter(self.name, start, end, with_control=with_control)
        self._isolation = isolation
        self._fail_on_loss = fail_on_loss
        self._topic_id = topic_id
        self._empty = 0
        self._in_flight: tuple[SparkConnection, int] | None = None
        self._deadline = time.monotonic() + PROGRESS_SECONDS_MAX

    def batches(self) -> Iterator[BatchView]:
        """Yield the batches with rows of the range. The first and the last may have other rows, too."""
        while not self.filter.is_done:
            part = self._next()
            if part is None:
                continue
            assert not isinstance(part.records, list), "what was decoded is in one buffer"
            data = memoryview(part.records or b"")
            before = self.filter.position
            if self._isolation == READ_COMMITTED:
                self.filter.announce((row.producer_id, row.first_offset) for row in part.aborted_transactions or ())
            ahead = _next_offset(data)
            if ahead is not None and ahead < self.filter.end:
                self._send(max(ahead, before))
            yield from self.filter.batches(data)
            self._watch(part, before)

    def _watch(self, part: PartitionData, before: int) -> None:
        if self.filter.position > before:
            self._deadline = time.monotonic() + PROGRESS_SECONDS_MAX
            self._empty = 0
            return
        readable = part.last_stable_offset if self._isolation == READ_COMMITTED else part.high_watermark
        self._empty += readable >= self.filter.end
        if self._empty >= _EMPTY_MAX:
            self.filter.position = self.filter.end
        elif time.monotonic() > self._deadline:
            raise ConnectorError(
                f"{self.name}: nothing was read at offset {before} for {PROGRESS_SECONDS_MAX:.0f} s, and {self.filter.end} is the end",
                "is its leader up, and has it all offsets that it had when the read was planned?",
            )

    def _send(self, offset: int) -> None:
        """Send a Fetch from the offset, unless one is in flight."""
        if self._in_flight is not None:
            return
        name, index = self.place
        request = FetchRequest(
            max_wait_ms=_WAIT_MS_MAX,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=self._isolation,
            topics=[
                FetchTopic(
                    name,
                    self._topic_id or ZERO_UUID,
                    [FetchPartition(index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX)],
                )
            ],
        )
        version_max = _NAMES_VERSION_MAX if self._topic_id is None else _FETCH_VERSION_MAX
        connection = self.cluster.node(self.cluster.leader(self.place))
        try:
            connection.send(request, version_max)
        except ConnectionLost:
            self.cluster.forget(connection)
            raise
        self._in_flight = connection, offset

    def _next(self) -> PartitionData | None:
        """Return the next response with the partition; None after an error that passes, or after a response for another offset."""
        try:
            self._send(self.filter.position)
            assert self._in_flight is not None
            (connection, offset), self._in_flight = self._in_flight, None
            try:
                response = connection.receive()
            except ConnectionLost:
                self.cluster.forget(connection)
                raise
            if offset != self.filter.position:
                return None
            check(f"reading {self.name}", response.error_code)
            part: PartitionData = response.responses[0].partitions[0]
            if part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                self._lose(offset)
                return None
            if part.error_code in OTHER_TOPIC and self._is_replaced():
                self._lose_all(offset)
                return None
            check(f"reading {self.name}", part.error_code)
        except ConnectorError as fault:
            passing = isinstance(fault, ConnectionLost) or passes(fault.code)
            if not passing or time.monotonic() > self._deadline:
                raise
            self._in_flight = None
            self.cluster.forget_leader(self.place)
            time.sleep(RETRY_BACKOFF_SECONDS)
            return None
        return part

    def _is_replaced(self) -> bool:
        """Return whether the topic with this id is gone, or its name belongs to another topic.

        A broker that lags behind reports that, too.
        """
        name = self.place[0]
        try:
            self.cluster.topics([name])
        except ConnectorError as fault:
            if fault.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return True
        return self.cluster.topic_ids([name]).get(name) != self._topic_id

    def _lose_all(self, offset: int) -> None:
        """Skip the rest of the range, or raise ConnectorError."""
        if self._fail_on_loss:
            raise topic_replaced(self.place[0], self.place[1], offset)
        self.filter.lose(self.filter.end)

    def _lose(self, offset: int) -> None:
        """Skip offsets that the log no longer has, or raise ConnectorError."""
        first = list_offsets(self.cluster, {self.place: EARLIEST}, self._isolation)[self.place]
        if self._fail_on_loss:
            raise data_loss(self.name, offset, first)
        self.filter.lose(first if first > offset else self.filter.end)


def topic_replaced(topic: str, partition: int, offset: int) -> ConnectorError:
    """Return the error for offsets of a topic that was deleted, and perhaps created again, before they were read."""
    return ConnectorError(
        f"{topic}-{partition}: the topic was deleted or created again, and what it had from offset {offset} on is gone",
        "with failOnDataLoss=false the query goes on with the first record of the new topic",
        ErrorCode.OFFSET_OUT_OF_RANGE,  # unlike UNKNOWN_TOPIC_ID, this error does not pass
    )


def data_loss(name: str, offset: int, first: int) -> ConnectorError:
    """Return the error for offsets that were to be read but no longer exist, because of retention or of a new topic with the
    name.
    """
    return ConnectorError(
        f"{name}: offsets that were to be read are gone: offset {offset} was asked for, and the log starts at {first}",
        "the topic was deleted, or retention is faster than the query; with failOnDataLoss=false they are passed over",
        ErrorCode.OFFSET_OUT_OF_RANGE,
    )


def _next_offset(data: memoryview) -> int | None:
    """Return the offset behind the last complete batch."""
    found, position, end = None, 0, len(data)
    while (size := batch_size(data, position, end)) is not None:
        found = BatchView(data, position).next_offset
        position += size
    return found
