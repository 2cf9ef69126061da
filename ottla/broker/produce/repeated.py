"""The fast path of Produce (server/network/context.py): one partition of a topic, of which a Produce has just been served.

Measured for a record of 100 bytes, without the kernel's part: 7.7 us by the handler, 4.2 us here (`python -m benchmarks.steps`).
The handler takes all other cases: several topics or partitions, acks=0, transactions, quotas, flush.messages, and every error:
an append that raises has changed nothing, so that the handler gets the same error.
tests/broker/produce/test_repeated.py compares both with random requests.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from ottla.broker.components import BrokerComponents
from ottla.broker.produce.handler import may_write
from ottla.broker.replication.partition import Partition
from ottla.protocol.api import ApiKey, encode_request_header, request_header_version, response_header_version
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError, MalformedMessage
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.protocol.primitives import read_uvarint_rest
from ottla.protocol.records.batch import ATTRIBUTES_LOW_AT, HEADER_BYTES, TRANSACTIONAL_BIT
from ottla.protocol.schema import ZERO_UUID
from ottla.protocol.work import RECORDS_A_TURN, TooLong
from ottla.server.authorization.authorizer import Authorizer
from ottla.server.network.connection import Connection
from ottla.server.network.context import ANSWERED, DELAYED, MISSES_MAX, NOT_SERVED, PendingResponse, RequestContext
from ottla.server.network.frames import Buffer
from ottla.server.network.replies import NO_PARTS
from ottla.storage.errors import StorageFailure

if TYPE_CHECKING:
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.route import Route

#: Each is some 500 bytes; a node with more kinds of producers than this makes them more than once.
KNOWN_MAX = 1_000
#: The longest beginning that such requests may have in common: a topic's name has 249 at most, but a client id may have 32 KB.
PREFIX_BYTES_MAX = 1 << 10
#: zstd is for Produce v7 and up (KIP-110): below, the handler looks at the codec.
VERSION_MIN = 7
#: Size, API and version, correlation id.
read_start = Struct(">iIi").unpack_from
read_index_and_size = Struct(">ii").unpack_from
read_index_and_bytes = Struct(">iBB").unpack_from
#: A value of the base offset that cannot be mistaken for another field of a response.
MARK = 0x7A6B_5C4D_3E2F_1A0B
NO_TAGS = bytes(3)  # the empty tags of the partition, the topic and the request


class RepeatedProduce:
    """Requests that begin with the same bytes, up to the partition's index: version, client id, acks, timeout, topic.

    All connections whose requests begin so share it: with 64 of them, 64 would not stay in the processor's cache.
    """

    __slots__ = (
        "_acks", "_authorizer", "_bytes_min", "_head", "_is_all", "_is_flexible", "_misses", "_mono_ns", "_name", "_nbytes", "_pack", "_partitions",
        "_prefix", "_prefix_end", "_quotas", "_replicas", "_start", "_tail", "_topic_id", "_turn", "_wakeups", "_wall_ms", "route",
        "timeout_ms", "wheel",
    )  # fmt: skip

    def __init__(
        self,
        broker: BrokerComponents,
        dispatcher: Dispatcher,
        route: Route,
        request: ProduceRequest,
        version: int,
        prefix: bytes,
        name: str,
    ) -> None:
        [topic] = request.topic_data
        self._start = ApiKey.PRODUCE << 16 | version
        self._prefix = prefix
        self._prefix_end = 12 + len(prefix)
        self._bytes_min = self._prefix_end + HEADER_BYTES
        self._is_flexible = request_header_version(ApiKey.PRODUCE, version) == 2
        self._name = name
        self._misses = 0
        self._topic_id = topic.topic_id
        self._replicas = broker.replicas
        #: The topic's partitions by index, until an append fails: one that this broker no longer has refuses appends (`resign`).
        self._partitions: dict[int, Partition] = {}
        self._acks = request.acks
        self._is_all = request.acks == -1
        self.timeout_ms = max(0, request.timeout_ms)
        self.wheel = broker.wheel
        self._wall_ms = broker.world.clock.wall_ms
        self._turn = broker.long_work.turn
        self._quotas = broker.quotas
        self._wakeups = broker.replicas.wakeups
        self._authorizer = broker.authorizer if broker.authorizer.enabled else None
        self._mono_ns = dispatcher.mono_ns
        self.route = route
        self._pack, self._nbytes, self._head, self._tail = response_form(topic, version)

    def serve(self, connection: Connection, buf: Buffer, pos: int, end: int) -> int:
        if end - pos < self._bytes_min:
            return NOT_SERVED
        nbytes, start, correlation_id = read_start(buf, pos)
        at = pos + self._prefix_end
        if nbytes != end - pos - 4:
            return NOT_SERVED
        if start != self._start or buf[pos + 12 : at] != self._prefix:
            if start >> 16 == ApiKey.PRODUCE:
                self._misses += 1
                if self._misses >= MISSES_MAX:
                    self._misses = 0
                    connection.fast_path = None
            return NOT_SERVED
        if self._quotas.active:
            return NOT_SERVED
        if self._is_flexible:
            index, size, more = read_index_and_bytes(buf, at)
            if size < 128:
                at += 5
            elif more < 128:
                size += (more << 7) - 128
                at += 6
            else:
                try:
                    size, at = read_uvarint_rest(buf, at + 5, size)
                except MalformedMessage:
                    return NOT_SERVED
            stop = at + size - 1
            if stop + 3 != end or buf[stop:end] != NO_TAGS:
                return NOT_SERVED
        else:
            index, size = read_index_and_size(buf, at)
            at += 8
            stop = at + size
            if stop != end:
                return NOT_SERVED
        partition = self._partitions.get(index) or self._find(index)
        if (
            partition is None
            or partition.flushes
            or buf[at + ATTRIBUTES_LOW_AT] & TRANSACTIONAL_BIT
            or (self._authorizer is not None and not self._is_allowed(self._authorizer, connection))
        ):
            return NOT_SERVED
        turn = self._turn
        turn.left = RECORDS_A_TURN
        try:
            appended = partition.append(memoryview(buf)[at:stop], self._acks, self._wall_ms(), prepared=turn)
        except (KafkaError, StorageFailure, TooLong):
            self._partitions.clear()
            return NOT_SERVED
        first, last, append_time, log_start, _ = appended
        is_all = self._is_all
        if is_all and not partition.commits_at_once and not partition.is_committed(last):
            body = (index, first, append_time, log_start)
            DelayedRepeatedProduce(self, connection, correlation_id, partition, last, body)
            return DELAYED
        frame = self._pack(
            self._nbytes, correlation_id, self._head, index, 0, first, append_time, log_start, self._tail
        )
        if is_all and self._wakeups.pending and self._wakeups.afterwards is None:
            self._wakeups.afterwards = FollowingProduce(self, connection, frame)
            return DELAYED
        connection.send(frame, self._nbytes + 4)
        return ANSWERED

    def _find(self, index: int) -> Partition | None:
        replicas = self._replicas
        if self._topic_id == ZERO_UUID:
            partition = replicas.by_name.get(self._name, {}).get(index)
        else:
            partition = replicas.by_id.get(self._topic_id, {}).get(index)
        if partition is not None:
            self._partitions[index] = partition
        return partition

    def _is_allowed(self, authorizer: Authorizer, connection: Connection) -> bool:
        context = connection.contexts.get(self._start)
        return context is not None and may_write(authorizer, context, self._name)

    def count(self, started_ns: int) -> None:
        self.route.count(self._mono_ns() - started_ns)

    def response(self, correlation_id: int, body: tuple[int, int, int, int], error: ErrorCode) -> bytes:
        """Return the whole frame. `body`: index, base offset, LogAppendTime, log start offset."""
        index, first, append_time, log_start = body
        if error:
            first = append_time = log_start = -1
        return self._pack(
            self._nbytes, correlation_id, self._head, index, error, first, append_time, log_start, self._tail
        )


class DelayedRepeatedProduce(PendingResponse):
    """Waits for the high watermark, or for timeout.ms: `DelayedProduce` of one partition, and the place of its response."""

    __slots__ = ("_body", "_connection", "_correlation_id", "_short", "_slot", "_started_ns", "_wait")

    def __init__(
        self,
        short: RepeatedProduce,
        connection: Connection,
        correlation_id: int,
        partition: Partition,
        last_offset: int,
        body: tuple[int, int, int, int],
    ) -> None:
        self.parts = None
        self.nbytes = 0
        self._short = short
        self._connection = connection
        self._correlation_id = correlation_id
        self._body = body
        self._started_ns = connection.stamp_ns
        self._slot = short.wheel.add(self, short.timeout_ms)
        connection.wait(self, 0)  # first: `when_committed` may call back at once
        self._wait = partition.when_committed(last_offset, self._committed)

    def _committed(self, error: ErrorCode) -> None:
        self._short.wheel.remove(self, self._slot)
        self._complete(error)

    def expire(self) -> None:
        self._wait.cancel()
        self._complete(ErrorCode.REQUEST_TIMED_OUT)

    def cancel(self) -> None:
        self._wait.cancel()
        self._short.wheel.remove(self, self._slot)

    def _complete(self, error: ErrorCode) -> None:
        connection, short = self._connection, self._short
        if connection.closed:
            return
        frame = short.response(self._correlation_id, self._body, error)
        short.count(self._started_ns)
        connection.complete(self, frame, NO_PARTS, len(frame))


class FollowingProduce(PendingResponse):
    """The response to a Produce that leaves after the responses to the Fetches that wait for its records. Only the first
    response of a turn does so, so that producers do not wait for each other. It is not used with acks=1, which asks for the
    earliest acknowledgement, nor where the Fetches may be those of followers.

    Each write to a socket wakes its client and takes 20 us. At 500 messages a second a record is in its consumer's socket after
    0.08 ms instead of 0.13 ms, and the p99 of that is 0.24 ms instead of 0.41 ms (benchmarks/performance-log.md, "Where the p99
    goes").
    """

    __slots__ = ("_connection", "_frame", "_short", "_started_ns")

    def __init__(self, short: RepeatedProduce, connection: Connection, frame: bytes) -> None:
        self.parts = None
        self.nbytes = 0
        self._short = short
        self._connection = connection
        self._frame = frame
        self._started_ns = connection.stamp_ns
        connection.wait(self, 0)

    def __call__(self) -> None:
        if self._connection.closed:
            return
        self._short.count(self._started_ns)
        self._connection.complete(self, self._frame, NO_PARTS, len(self._frame))


class RepeatedProduces:
    """The fast paths of a broker, by the bytes that they know."""

    def __init__(self, broker: BrokerComponents) -> None:
        self._broker = broker
        self._known: dict[bytes, RepeatedProduce] = {}

    def __call__(
        self, dispatcher: Dispatcher, route: Route, request: ProduceRequest, context: RequestContext, frame: bytes
    ) -> RepeatedProduce | None:
        """Return the fast path for requests that begin as `frame` does; None if they need the handler."""
        version, broker = context.api_version, self._broker
        if version < VERSION_MIN or request.acks not in (1, -1) or request.transactional_id is not None:
            return None
        if len(request.topic_data) != 1 or len(request.topic_data[0].partition_data) != 1:
            return None
        [topic] = request.topic_data
        name = topic.name or broker.metadata.topic_name(topic.topic_id)
        if name is None or name in broker.internal_topics:
            return None
        prefix = encode_request_header(ApiKey.PRODUCE, version, 0, context.client_id)
        prefix += body_before_index(request, topic, version)
        if len(prefix) > PREFIX_BYTES_MAX or frame[8 : len(prefix)] != prefix[8:]:
            return None  # unknown tagged fields, or a client id that is no UTF-8
        known = self._known.get(prefix)
        if known is None:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            known = self._known[prefix] = RepeatedProduce(broker, dispatcher, route, request, version, prefix[8:], name)
        return known


# -- The bytes that do not change from one request of a producer to its next, and those of its response: the codecs make them, from a
# request and a response with known values in the fields that do change.


def body_before_index(request: ProduceRequest, topic: TopicProduceData, version: int) -> bytes:
    """Return the body of a request up to the index of its partition, which is followed by its records."""
    topic = TopicProduceData(
        name=topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=0, records=b"")]
    )
    body = encode(ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[topic]), version)
    # The index, and the length of no records: four bytes, or one, and then an empty section of tags on three levels.
    return body[:-8]


def response_form(topic: TopicProduceData, version: int) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Return the packer of a whole response frame, its size field, and the bytes before the index and after the offsets."""
    partition = PartitionProduceResponse(base_offset=MARK)
    answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
    body = encode(ProduceResponse(responses=[answered]), version)
    at = body.index(MARK.to_bytes(8, "big"))
    head, tail = body[: at - 6], body[at + 24 :]
    if response_header_version(ApiKey.PRODUCE, version):
        head = b"\0" + head
    form = Struct(f">ii{len(head)}sihqqq{len(tail)}s")
    return form.pack, form.size - 4, head, tail
