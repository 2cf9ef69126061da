"""A cluster in memory for blocking clients: transactions as their coordinator keeps them, and processes that take turns at requests.

Each process of Spark, a task or a driver, is a thread that runs only while it has its turn: from one request to the next. It can be
killed before a request, or between its effect and its response.
"""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages import add_partitions_to_txn as add
from ottla.protocol.messages import (
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_transactions,
    produce,
)
from ottla.protocol.records.batch import iter_batches
from ottla.spark.errors import ConnectionLost
from tests.sim.mirror_model import NODE, Log, ModelCluster

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"
TURN_S = 0.05


class SinkBroken(AssertionError):
    """A reader of committed records sees records that it must not see, or misses some."""


class Killed(BaseException):
    """The process is gone."""


class SparkProcess:
    """A function on its own thread. `turn` lets it run until its next request, or its end."""

    current: SparkProcess | None = None

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name, self.result, self.fault = name, cast(Any, None), cast("BaseException | None", None)
        self.is_over = self.is_killed = False
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._function = function
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.is_killed:
                self.result = self._function()
        except (Exception, Killed) as fault:
            self.fault = fault
        self.is_over = True
        self._back.release()

    def turn(self) -> None:
        before, SparkProcess.current = SparkProcess.current, self
        self._go.release()
        self._back.acquire()
        SparkProcess.current = before

    def stop(self) -> None:
        """Wait on the thread for the next turn."""
        if self.is_killed:
            raise Killed
        self._back.release()
        self._go.acquire()
        if self.is_killed:
            raise Killed

    def kill(self) -> None:
        self.is_killed = True
        while not self.is_over:
            self.turn()


@dataclass
class Transaction:
    """A transactional id as its coordinator stores it. Times are virtual seconds."""

    producer_id: int
    timeout_s: float
    epoch: int = -1
    state: str = EMPTY
    since_s: float = 0.0
    places: set[tuple[str, int]] = field(default_factory=set)
    #: The offsets of the batches of its producer, by epoch, partition and sequence number.
    written: dict[tuple[int, str, int, int], int] = field(default_factory=dict)


class SinkCluster(ModelCluster):
    """One broker. Some of the requests are lost, half of them after they took effect."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__("kafka", rng)
        self.now_s = 0.0
        self.lost = 0.0
        self.transactions: dict[str, Transaction] = {}

    def advance(self, seconds: float) -> None:
        """Advance the time, and end transactions that are open for too long."""
        self.now_s += seconds
        for row in self.transactions.values():
            if row.state == ONGOING and row.since_s + row.timeout_s < self.now_s:
                self._end(row, committed=False)
                row.epoch += 1

    def ask(self, request: Any) -> Any:
        """Answer a request of the process that has its turn."""
        process = SparkProcess.current
        if process is not None:
            process.stop()
        is_lost = process is not None and self.rng.random() < self.lost
        if is_lost and self.rng.random() < 0.5:
            raise ConnectionLost("lost before")
        if isinstance(request, fetch.FetchRequest):
            response: Any = self._fetch(request)
        else:
            response = getattr(self, f"_{type(request).__name__}")(request)
        if process is not None:
            process.stop()
        if is_lost:
            raise ConnectionLost("lost after")
        return response

    # -- Requests ----------------------------------------------------------------------------------------------------------

    def _fetch(self, request: fetch.FetchRequest) -> fetch.FetchResponse:
        for topic in request.topics:
            for part in topic.partitions:
                part.current_leader_epoch = 0
        rows = [
            fetch.FetchableTopicResponse(
                topic.topic, partitions=[self._read(topic.topic, part, request) for part in topic.partitions]
            )
            for topic in request.topics
        ]
        return fetch.FetchResponse(responses=rows)

    def _FindCoordinatorRequest(self, request: find_coordinator.FindCoordinatorRequest) -> object:
        return find_coordinator.FindCoordinatorResponse(node_id=NODE, host=self.name, port=1)

    def _InitProducerIdRequest(self, request: init_producer_id.InitProducerIdRequest) -> object:
        name = request.transactional_id or ""
        made = Transaction(100 + len(self.transactions), request.transaction_timeout_ms / 1000)
        row = self.transactions.setdefault(name, made)
        if request.producer_id >= 0 and self._code(row, request.producer_id, request.producer_epoch):
            return init_producer_id.InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        row.timeout_s = made.timeout_s
        if row.state == ONGOING:
            self._end(row, committed=False)
            row.epoch += 1
            if self.rng.random() < 0.5:
                return init_producer_id.InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        row.epoch, row.state = row.epoch + 1, EMPTY
        return init_producer_id.InitProducerIdResponse(producer_id=row.producer_id, producer_epoch=row.epoch)

    def _code(self, row: Transaction | None, producer_id: int, epoch: int) -> int:
        if row is None or row.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return ErrorCode.NONE if row.epoch == epoch else ErrorCode.PRODUCER_FENCED

    def _AddPartitionsToTxnRequest(self, request: add.AddPartitionsToTxnRequest) -> object:
        row = self.transactions.get(request.v3_and_below_transactional_id)
        code = self._code(row, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        if not code and row is not None:
            if row.state != ONGOING:
                row.state, row.since_s = ONGOING, self.now_s
            row.places |= {(each.name, index) for each in request.v3_and_below_topics for index in each.partitions}
        topics = [
            add.AddPartitionsToTxnTopicResult(
                each.name, [add.AddPartitionsToTxnPartitionResult(index, code) for index in each.partitions]
            )
            for each in request.v3_and_below_topics
        ]
        return add.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)

    def _ProduceRequest(self, request: produce.ProduceRequest) -> object:
        row = self.transactions[request.transactional_id or ""]
        topics = []
        for topic in request.topic_data:
            parts = []
            for part in topic.partition_data:
                data = bytes(cast(Any, part.records))
                (batch,) = iter_batches(data)
                key = batch.producer_epoch, topic.name, part.index, batch.base_sequence
                code = self._code(row, batch.producer_id, batch.producer_epoch)
                if not code and (row.state != ONGOING or (topic.name, part.index) not in row.places):
                    code = ErrorCode.INVALID_TXN_STATE
                if not code and key not in row.written:
                    row.written[key] = self._log(topic.name, part.index).append(data, batch.count, batch.producer_id)
                parts.append(produce.PartitionProduceResponse(part.index, code, row.written.get(key, -1)))
            topics.append(produce.TopicProduceResponse(topic.name, partition_responses=parts))
        return produce.ProduceResponse(responses=topics)

    def _EndTxnRequest(self, request: end_txn.EndTxnRequest) -> object:
        row = self.transactions.get(request.transactional_id)
        code = self._code(row, request.producer_id, request.producer_epoch)
        if not code and row is not None:
            if row.state == ONGOING:
                self._end(row, committed=request.committed)
            elif row.state != (COMMITTED if request.committed else ABORTED):
                code = ErrorCode.INVALID_TXN_STATE
        return end_txn.EndTxnResponse(error_code=code)

    def _end(self, row: Transaction, *, committed: bool) -> None:
        for name, index in sorted(row.places):
            self._log(name, index).mark(row.producer_id, committed=committed)
        row.places, row.state = set(), COMMITTED if committed else ABORTED

    def _log(self, name: str, index: int) -> Log:
        return self.topics[name].logs[index]

    def _DescribeTransactionsRequest(self, request: describe_transactions.DescribeTransactionsRequest) -> object:
        rows = []
        for name in request.transactional_ids:
            row = self.transactions[name]
            rows.append(describe_transactions.TransactionState(0, name, row.state, 0, 0, row.producer_id, row.epoch))
        return describe_transactions.DescribeTransactionsResponse(transaction_states=rows)

    def _ListTransactionsRequest(self, request: list_transactions.ListTransactionsRequest) -> object:
        rows = [
            list_transactions.TransactionState(name, row.producer_id, row.state)
            for name, row in self.transactions.items()
            if row.state in request.state_filters
        ]
        return list_transactions.ListTransactionsResponse(transaction_states=rows)


class ModelConnection:
    """A connection in place of `SparkConnection`, to the cluster of the running history."""

    cluster: SinkCluster
    is_due = False

    def __init__(self, host: str, port: int, security: object) -> None:
        self._answers: deque[Any] = deque()

    def call(self, request: Any, version_max: int = 0) -> Any:
        return self.cluster.ask(request)

    def send(self, request: Any, version_max: int = 0) -> None:
        self._answers.append(self.cluster.ask(request))

    def receive(self) -> Any:
        return self._answers.popleft()

    def close(self) -> None:
        return


def clock_of(cluster: SinkCluster) -> Any:
    """Return the replacement for the module `time`: a process that sleeps ends its turn."""

    def sleep(seconds: float) -> None:
        if SparkProcess.current is not None:
            SparkProcess.current.stop()
        cluster.advance(seconds)

    return SimpleNamespace(
        sleep=sleep, monotonic=lambda: cluster.now_s, time_ns=lambda: int(cluster.now_s * 1_000_000_000)
    )
