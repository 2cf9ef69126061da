"""A producer of transaction version 2 (KIP-890) made of single requests to all nodes of a cluster: every response to it is
known.

As clients do, it retries after transient errors: a coordinator that moves or loads, a lost leader, a former transaction that
still completes. Anything else is in `refused`, and ends the call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.testing import Cluster
from tests.broker.records import batch
from tests.broker.wire import Wire
from tests.cluster.coordinators import TRANSACTION, group_coordinator, transaction_coordinator

SECONDS_MAX = 60.0
RETRY_SECONDS = 0.01
INIT_PRODUCER_ID_VERSION = 5
# The newest versions with names of topics.
PRODUCE_VERSION, TXN_OFFSET_COMMIT_VERSION, OFFSET_FETCH_VERSION = 12, 5, 9
LATEST = -1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)


class RequestRejected(Exception):
    """An error that is not transient."""


class Nodes:
    """Sends requests to the node that `find` names, until the error is not transient. The node that was right gets the next
    request first.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._right: dict[Hashable, int] = {}
        self._wires: dict[int, Wire] = {}

    def ask(
        self,
        role: Hashable,
        find: Callable[[], int],
        request: Any,
        version: int | None,
        error_of: Callable[[Any], int],
    ) -> Any:
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                node_id = self._right.get(role) or find()
                if self.cluster.is_paused(node_id):
                    raise ConnectionError(f"node {node_id} is paused: it answers when it is resumed at the earliest")
                answer = self._wire(node_id).request(request, version)
                error = ErrorCode(error_of(answer))
            except (OSError, AssertionError, KeyError):
                self._wires.clear()
                error = ErrorCode.NETWORK_EXCEPTION
            if error not in PASSING:
                if error:
                    raise RequestRejected(f"{type(request).__name__}: {error.name}")
                self._right[role] = node_id
                return answer
            self._right.pop(role, None)
            assert time.monotonic() < deadline, f"{type(request).__name__} still says {error.name}"
            time.sleep(RETRY_SECONDS)

    def _wire(self, node_id: int) -> Wire:
        wire = self._wires.get(node_id)
        if wire is None:
            wire = self._wires[node_id] = Wire(self.cluster.nodes[node_id].port)
        return wire

    def leader(self, topic: str, partition: int) -> int:
        return self.cluster.leaders(topic)[partition]

    def end_offset(self, topic: str, partition: int, isolation_level: int) -> int:
        asked = [ListOffsetsPartition(partition_index=partition, timestamp=LATEST)]
        request = ListOffsetsRequest(
            isolation_level=isolation_level, topics=[ListOffsetsTopic(name=topic, partitions=asked)]
        )
        answer = self.ask(
            (topic, partition),
            lambda: self.leader(topic, partition),
            request,
            None,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        return int(answer.topics[0].partitions[0].offset)

    def is_stable(self, topic: str, partition: int) -> bool:
        """Return whether no transaction is open there."""
        stable = self.end_offset(topic, partition, READ_COMMITTED)
        return stable == self.end_offset(topic, partition, READ_UNCOMMITTED)

    def committed_offset(self, group_id: str, topic: str, partition: int = 0) -> int:
        """Return the committed offset, once no transaction is pending (KIP-447)."""
        wanted = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=wanted)], require_stable=True
        )

        def error_of(answer: Any) -> int:
            group = answer.groups[0]
            return int(group.error_code or group.topics[0].partitions[0].error_code)

        answer = self.ask(
            group_id, lambda: group_coordinator(self.cluster, group_id), request, OFFSET_FETCH_VERSION, error_of
        )
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)


class Transactor(Nodes):
    """A transactional producer over raw requests."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int = 60_000) -> None:
        super().__init__(cluster)
        self.transactional_id = transactional_id
        self._sequences: Counter[tuple[str, int]] = Counter()
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        self._became(
            self.ask(TRANSACTION, self.coordinator, request, INIT_PRODUCER_ID_VERSION, lambda answer: answer.error_code)
        )

    def coordinator(self) -> int:
        return transaction_coordinator(self.cluster, self.transactional_id)

    def _became(self, answer: Any) -> None:
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def produce(self, topic: str, partition: int, value: bytes) -> None:
        self.ask(
            (topic, partition),
            lambda: self.leader(topic, partition),
            self.produce_request(topic, partition, value),
            PRODUCE_VERSION,
            lambda answer: answer.responses[0].partition_responses[0].error_code,
        )
        self._sequences[topic, partition] += 1

    def produce_request(self, topic: str, partition: int, value: bytes, timeout_ms: int = 5_000) -> ProduceRequest:
        """Return the next Produce request."""
        records = batch(
            [value],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences[topic, partition],
            transactional=True,
        )
        data = [PartitionProduceData(index=partition, records=memoryview(records))]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=timeout_ms,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )

    def commit_offset(self, group_id: str, topic: str, offset: int, partition: int = 0) -> None:
        committed = TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        self.ask(
            group_id,
            lambda: group_coordinator(self.cluster, group_id),
            request,
            TXN_OFFSET_COMMIT_VERSION,
            lambda answer: answer.topics[0].partitions[0].error_code,
        )

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        """Return the request that ends the present transaction, which may not have begun."""
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool) -> None:
        request = self.end_request(commit=commit)
        self._became(self.ask(TRANSACTION, self.coordinator, request, None, lambda answer: answer.error_code))
