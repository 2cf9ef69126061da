"""The task on an executor: it writes Arrow batches as records in a transaction, and leaves it prepared for the driver.

If the batch is already decided, a task writes nothing, unless the transaction of its partition was lost: see `resolved`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from ottla.protocol.records.builder import partition_for_key
from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.outcomes import commit_or_find
from ottla.spark.client.producer import BlockingProducer, Row, WrittenTransaction
from ottla.spark.errors import ConnectorError
from ottla.spark.sink.decisions import Decisions, SinkDecision
from ottla.spark.sink.options import SinkOptions

#: Local properties of a task that Structured Streaming sets. A job's group is the id of the query's run.
_BATCH, _QUERY, _RUN = "streaming.sql.batchId", "sql.streaming.queryId", "spark.jobGroup.id"


class Place(NamedTuple):
    """The place of a task: its micro-batch (-1 if there is none), the sink and the run, its partition and its attempt."""

    batch: int
    sink: str
    run: str
    partition: int
    attempt: int


class PreparedTask(WriterCommitMessage):
    """The result of a task: its transaction is open, if it has written rows in one.

    `repaired` is the transaction of the partition in the decision, if it was aborted: the task's own transaction replaces it.
    This holds only while the last decision still has `repaired`, because another run may have replaced it too.
    """

    def __init__(
        self, place: Place, written: WrittenTransaction | None, *, repaired: WrittenTransaction | None = None
    ) -> None:
        self.place = place
        self.written = written
        self.repaired = repaired


def place_of(options: SinkOptions) -> Place:
    """Return the place of the running task. Raises ConnectorError outside of a task."""
    context = TaskContext.get()
    if context is None:
        raise ConnectorError("there is no task of Spark here")
    query = context.getLocalProperty(_QUERY)
    run = (context.getLocalProperty(_RUN) if query else None) or options.run
    batch = options.batch_id
    if options.is_stream:
        batch = int(context.getLocalProperty(_BATCH) or -1)
    sink = options.sink_id or (query if options.is_stream else None) or ""
    return Place(-1 if batch is None else batch, sink, run, context.partitionId(), context.attemptNumber())


def write(options: SinkOptions, batches: Iterable[pa.RecordBatch], place: Place) -> PreparedTask:
    """Write the rows of the task. If it raises ConnectorError, none of them is ever committed."""
    with BlockingCluster(options.client) as cluster:
        if not options.is_exactly_once:
            _send(cluster, BlockingProducer(cluster, options.codec), options, batches, place)
            return PreparedTask(place, None)
        last = _last_decision(cluster, options, place)
        repaired = None
        if last is not None and last.batch >= place.batch:
            if last.batch > place.batch or resolved(cluster, last, place.partition):
                return PreparedTask(place, None)
            repaired = last.prepared[place.partition]
        producer = BlockingProducer(cluster, options.codec, transactional_id(options, place), options.timeout_ms)
        _send(cluster, producer, options, batches, place)
        return PreparedTask(place, producer.written, repaired=repaired)


def transactional_id(options: SinkOptions, place: Place) -> str:
    """Return the id of the task's transaction. Tasks of one run use it again for each batch, tasks of another run never."""
    return f"{options.id_prefix}{place.sink}/{place.run}/{place.partition}/{place.attempt}"


def _last_decision(cluster: BlockingCluster, options: SinkOptions, place: Place) -> SinkDecision | None:
    if place.batch < 0:
        return None
    decisions = Decisions(cluster, options.batches_topic, place.sink)
    decisions.ensure()
    return decisions.last()


def resolved(cluster: BlockingCluster, decision: SinkDecision, partition: int) -> bool:
    """Commit the partition's transaction of a decided batch.

    Return False if it was lost: then its rows have to be written again.

    A transaction is lost if its timeout aborted it between the decision and its commit, while the driver was away. A fenced
    transaction need not be lost: another query on the checkpoint, which is already at the next batch, may have used its
    transactional id again. A partition without rows, or one that the batch did not have, has nothing to commit.
    """
    own = decision.prepared.get(partition)
    return own is None or commit_or_find(cluster, own)


def _send(
    cluster: BlockingCluster,
    producer: BlockingProducer,
    options: SinkOptions,
    batches: Iterable[pa.RecordBatch],
    place: Place,
) -> None:
    partitioner = Partitioner(lambda topic: cluster.topics([topic])[0].partitions, place.batch + place.partition)
    now_ms = time.time_ns() // 1_000_000
    for topic, partition, row in rows_of(batches, options.topic, now_ms):
        producer.add((topic, partitioner.partition(topic, row[0], partition)), row)
    producer.flush()


def rows_of(batches: Iterable[pa.RecordBatch], topic: str | None, now_ms: int) -> Iterator[tuple[str, int | None, Row]]:
    """Yield topic, partition (None: by the key) and row.

    Raises ConnectorError for a row without a topic, or a header without a key.
    """
    for batch in batches:
        names, count = batch.schema.names, batch.num_rows
        empty: list[Any] = [None] * count
        columns = {name: batch.column(names.index(name)).to_pylist() if name in names else empty for name in (
            "key", "value", "headers", "topic", "partition")}  # fmt: skip
        for key, value, headers, own_topic, partition in zip(*columns.values(), strict=True):
            where = topic or own_topic
            if not where:
                raise ConnectorError("a row has no topic", "give the option topic, or fill the column topic")
            yield where, partition, (_bytes(key), _bytes(value), now_ms, _headers(headers))


def _bytes(found: bytes | str | None) -> bytes | None:
    return found.encode() if isinstance(found, str) else found


def _headers(found: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    if not found:
        return ()
    if any(each["key"] is None for each in found):
        raise ConnectorError("a header has no key")
    return tuple((each["key"], each["value"]) for each in found)


class Partitioner:
    """Chooses partitions as Java's producer does: by the key's murmur2, and for rows without a key in turns.

    `first` is the partition with which the turns begin. It differs between tasks, because otherwise all small tasks would write
    to the same partition.
    """

    #: Rows without a key go to one partition until it has this many, so that batches get full (KIP-480).
    STICKY_ROWS = 500

    def __init__(self, partitions_of: Callable[[str], int], first: int) -> None:
        self._partitions_of = partitions_of
        self._counts: dict[str, int] = {}
        self._turns = first * self.STICKY_ROWS

    def partition(self, topic: str, key: bytes | None, given: int | None) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._partitions_of(topic)
        count = self._counts[topic]
        if given is not None:
            if not 0 <= given < count:
                raise ConnectorError(f"a row has partition {given}, and topic {topic} has {count}")
            return given
        if key is not None:
            return partition_for_key(key, count)
        self._turns += 1
        return self._turns // self.STICKY_ROWS % count
