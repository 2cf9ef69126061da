"""The last committed micro-batch of a sink is the last record of its key in a compacted topic.

A decision names the batch and its prepared transactions. Once it is written, all of these will be committed, by whichever
process is alive: this record is the one point at which a batch becomes final.

It is written by compare-and-set: the driver's own transactional id fences every other driver of the sink between its look at the last
decision and the end of the transaction that has the next one.

Records are read up to the high watermark and judged by the markers of their own producer: an open transaction of another sink
holds back the last stable offset, and read_committed would then hide a decision that became final long ago.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.records.batch import BatchView
from ottla.protocol.records.compression import NO_COMPRESSION
from ottla.protocol.records.control import end_txn_marker
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.fetch import RangeReader
from ottla.spark.client.offsets import EARLIEST, LATEST, READ_UNCOMMITTED, list_offsets
from ottla.spark.client.producer import BlockingProducer, SinkTransaction, WrittenTransaction, end
from ottla.spark.errors import ConnectorError, check

#: The last decision of a sink is nearly always within this distance of the end. If it is not, the topic is read from its
#: beginning.
TAIL_OFFSETS = 500
_TIMEOUT_MS = 60_000


class SinkDecision(NamedTuple):
    """A final batch. `prepared` has the transaction of each of Spark's partitions that wrote rows."""

    batch: int
    run: str
    prepared: dict[int, WrittenTransaction]

    def to_bytes(self) -> bytes:
        rows = {
            str(number): [*each.transaction, *each.place, each.offset] for number, each in sorted(self.prepared.items())
        }
        return json.dumps({"batch": self.batch, "run": self.run, "transactions": rows}).encode()


def decision_of(data: bytes | None) -> SinkDecision:
    """Raise ConnectorError if the bytes are no decision: then something else uses the topic."""
    try:
        row = json.loads(data or b"")
        prepared = {
            int(number): WrittenTransaction(
                SinkTransaction(name, producer, epoch), (topic, int(partition)), int(offset)
            )
            for number, (name, producer, epoch, topic, partition, offset) in row["transactions"].items()
        }
        return SinkDecision(int(row["batch"]), str(row["run"]), prepared)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise ConnectorError(
            f"the topic of batches has a record that this sink did not write: {fault!r}",
            "give another one: batchesTopic",
        ) from None


class Decisions:
    """The decisions of one sink."""

    def __init__(self, cluster: BlockingCluster, topic: str, sink: str) -> None:
        self.cluster = cluster
        self.sink = sink
        self._place = (topic, 0)

    def ensure(self) -> None:
        """Create the topic if it does not exist. Raises ConnectorError if that is not allowed."""
        name = self._place[0]
        try:
            self.cluster.topics([name])
        except ConnectorError as fault:
            if fault.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            return
        settings = [CreatableTopicConfig("cleanup.policy", "compact")]
        request = CreateTopicsRequest([CreatableTopic(name, 1, -1, configs=settings)])
        (row,) = self.cluster.any_call(request).topics
        if row.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(f"creating topic {name}", row.error_code, row.error_message)
        self.cluster.retry(lambda: self.cluster.leader(self._place), also=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))

    def last(self) -> SinkDecision | None:
        """Return the last decision whose transaction was committed."""
        times = {"first": EARLIEST, "last": LATEST}
        edges = {
            name: list_offsets(self.cluster, {self._place: time}, READ_UNCOMMITTED)[self._place]
            for name, time in times.items()
        }
        tail = max(edges["first"], edges["last"] - TAIL_OFFSETS)
        found = self._last(tail, edges["last"])
        return self._last(edges["first"], tail) if found is None and tail > edges["first"] else found

    def _last(self, start: int, stop: int) -> SinkDecision | None:
        found: SinkDecision | None = None
        open_: dict[int, SinkDecision] = {}
        for batch in self._batches(start, stop):
            if batch.is_control:
                marker = end_txn_marker(batch)
                ended = open_.pop(batch.producer_id, None)
                if marker is not None and marker.committed and ended is not None:
                    found = ended
                continue
            for record in batch.iter_records():
                if record.key == self.sink.encode():
                    open_[batch.producer_id] = decision_of(record.value)
        return found

    def _batches(self, start: int, stop: int) -> Iterator[BatchView]:
        # The marker of a transaction that began before `stop` may be behind it.
        end_ = list_offsets(self.cluster, {self._place: LATEST}, READ_UNCOMMITTED)[self._place]
        reader = RangeReader(
            self.cluster, self._place, start, max(stop, end_), READ_UNCOMMITTED, fail_on_loss=False, with_control=True
        )
        return reader.batches()

    def claim(self, driver_id: str) -> Claim:
        """Fence every other driver of this sink, and complete what the last one has begun.

        From then on only this claim can change `last`.
        """
        return Claim(self, BlockingProducer(self.cluster, NO_COMPRESSION, driver_id, _TIMEOUT_MS))

    @property
    def place(self) -> tuple[str, int]:
        return self._place


class Claim:
    """The right to write the next decision, until another driver takes it."""

    def __init__(self, decisions: Decisions, producer: BlockingProducer) -> None:
        self._decisions = decisions
        self._producer = producer
        self.last = decisions.last()

    def write(self, decision: SinkDecision, now_ms: int) -> None:
        """Make the decision final.

        Raises ConnectorError if another driver has claimed the sink: then the decision is not final.
        """
        producer = self._producer
        producer.add(self._decisions.place, (self._decisions.sink.encode(), decision.to_bytes(), now_ms, ()))
        producer.flush()
        transaction = producer.transaction
        assert transaction is not None
        if not end(self._decisions.cluster, transaction, commit=True):
            raise ConnectorError(
                f"another query writes to the sink {self._decisions.sink}: batch {decision.batch} is left to it",
                "stop one of them: two queries with one checkpoint, or one sinkId, are never both right",
            )
