"""Records one long sequence of requests about transactions to a broker, with its responses.

The answers are normalised (producer ids by their order), so that equal behaviour of two brokers gives equal text. To record
those of a real Apache Kafka, fresh and of one node:

    python -m tests.broker.transactions.request_recorder 9092 > tests/broker/transactions/kafka_answers.txt
"""

from __future__ import annotations

import sys
import time
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_producers import DescribeProducersRequest
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_transactions import ListTransactionsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.shared_structs import TopicPartitionIndexes
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.protocol.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord
from tests.broker.wire import Wire

TOPIC = "tt"
RETRIABLE = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
             ErrorCode.COORDINATOR_NOT_AVAILABLE)  # fmt: skip
SECONDS_MAX = 20
GROUP, TRANSACTION = 0, 1


def name(code: int) -> str:
    return ErrorCode(code).name


def topics_of(parts: dict[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in parts.items()]


class RequestRecorder:
    """Sends requests to a broker, and records one line for each request and response."""

    def __init__(self, port: int) -> None:
        self.wire = Wire(port)
        self.lines: list[str] = []
        self._producers: dict[int, str] = {}

    def producer(self, producer_id: int) -> str:
        return "-" if producer_id < 0 else self._producers.setdefault(producer_id, f"P{len(self._producers)}")

    def log(self, *words: Any) -> None:
        self.lines.append(" ".join(map(str, words)))

    def wait_for_coordinator(self, key_type: int, key: str) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while (
            self.wire.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]), 6)
            .coordinators[0]
            .error_code
        ):
            assert time.monotonic() < deadline, f"no coordinator for {key}"
            time.sleep(0.05)

    def wait_for_offsets(self, group: str) -> None:
        """Wait while a newly elected coordinator loads."""
        deadline = time.monotonic() + SECONDS_MAX
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
        while self.wire.request(request, 8).groups[0].error_code:
            assert time.monotonic() < deadline, f"the offsets of {group} are not loaded"
            time.sleep(0.05)

    def init(
        self, tid: str | None, pid: int = -1, epoch: int = -1, timeout: int = 60_000, v: int = 5, retry: bool = False
    ) -> tuple[int, int]:
        request = InitProducerIdRequest(tid, timeout, pid, epoch)
        answer = self.wire.request(request, v)
        while retry and answer.error_code in RETRIABLE:
            time.sleep(0.05)
            answer = self.wire.request(request, v)
        self.log(f"init {tid} v{v}:", name(answer.error_code), self.producer(answer.producer_id), answer.producer_epoch)
        return answer.producer_id, answer.producer_epoch

    def add(self, tid: str, pid: int, epoch: int, parts: dict[str, list[int]], v: int = 3) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=tid,
            v3_and_below_producer_id=pid,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics_of(parts),
        )
        answer = self.wire.request(request, v)
        self.log(f"add {tid} v{v}:", self._added(answer.results_by_topic_v3_and_below))

    def add_as_broker(self, tid: str, pid: int, epoch: int, parts: dict[str, list[int]], *, verify: bool) -> None:
        transaction = AddPartitionsToTxnTransaction(tid, pid, epoch, verify, topics_of(parts))
        answer = self.wire.request(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        results = [
            (result.transactional_id, self._added(result.topic_results)) for result in answer.results_by_transaction
        ]
        self.log("verify:" if verify else "add as broker:", name(answer.error_code), results)

    @staticmethod
    def _added(topics: Any) -> list[tuple[str, int, str]]:
        return sorted(
            (topic.name, result.partition_index, name(result.partition_error_code))
            for topic in topics
            for result in topic.results_by_partition
        )

    def end(self, tid: str, pid: int, epoch: int, commit: bool, v: int = 5) -> tuple[int, int]:
        answer = self.wire.request(EndTxnRequest(tid, pid, epoch, commit), v)
        outcome = "commit" if commit else "abort"
        self.log(f"{outcome} {tid} epoch {epoch} v{v}:", name(answer.error_code), self.producer(answer.producer_id),
                 answer.producer_epoch)  # fmt: skip
        if tid:
            self.settle(tid)
        return answer.producer_id, answer.producer_epoch

    def described(self, tid: str) -> Any:
        return self.wire.request(DescribeTransactionsRequest(transactional_ids=[tid])).transaction_states[0]

    def settle(self, tid: str) -> None:
        """Wait for the markers, which may come after the response."""
        deadline = time.monotonic() + SECONDS_MAX
        while self.described(tid).transaction_state.startswith("Prepare"):
            assert time.monotonic() < deadline, f"{tid} is not completed"
            time.sleep(0.01)

    def describe(self, tid: str) -> None:
        found = self.described(tid)
        if found.error_code:
            self.log(f"describe {tid}:", name(found.error_code))
            return
        partitions = sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics)
        self.log(f"describe {tid}:", found.transaction_state, found.transaction_timeout_ms,
                 "started" if found.transaction_start_time_ms > 0 else "not started",
                 self.producer(found.producer_id), found.producer_epoch, partitions)  # fmt: skip

    def produce(
        self,
        tid: str | None,
        pid: int,
        epoch: int,
        sequence: int,
        v: int,
        *,
        n: int = 1,
        part: int = 0,
        txn: bool = True,
    ) -> None:
        now_ms = int(time.time() * 1000)
        batch = build_batch([NewRecord(b"k", b"v", now_ms)] * n, base_offset=0, producer_id=pid, producer_epoch=epoch,
                            base_sequence=sequence, transactional=txn)  # fmt: skip
        data = [TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=part, records=batch)])]
        answer = self.wire.request(ProduceRequest(tid, -1, 5000, data), v)
        found = answer.responses[0].partition_responses[0]
        self.log(f"produce {tid} epoch {epoch} sequence {sequence} v{v}:", name(found.error_code), found.base_offset)

    def fetch(self, isolation: int, part: int = 0) -> None:
        wanted = [FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=part, partition_max_bytes=1 << 20)])]
        answer = self.wire.request(
            FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=isolation, topics=wanted), 12
        )
        found = answer.responses[0].partitions[0]
        aborted = found.aborted_transactions
        listed = None if aborted is None else [(self.producer(txn.producer_id), txn.first_offset) for txn in aborted]
        self.log(f"fetch {isolation}:", name(found.error_code), found.high_watermark, found.last_stable_offset, listed,
                 len(found.records or b""), "bytes")  # fmt: skip

    def commit_offset(
        self, tid: str, group: str, pid: int, epoch: int, offset: int, v: int = 5, gen: int = -1, member: str = "",
        topic: str = TOPIC,
    ) -> None:  # fmt: skip
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
        request = TxnOffsetCommitRequest(
            transactional_id=tid,
            group_id=group,
            producer_id=pid,
            producer_epoch=epoch,
            generation_id_or_member_epoch=gen,
            member_id=member,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = self.wire.request(request, v)
        errors = [(p.partition_index, name(p.error_code)) for t in answer.topics for p in t.partitions]
        self.log(f"commit offset {tid} {group} v{v}:", errors)

    def add_offsets(self, tid: str, pid: int, epoch: int, group: str, v: int = 3) -> None:
        answer = self.wire.request(AddOffsetsToTxnRequest(tid, pid, epoch, group), v)
        self.log(f"add offsets {tid} {group} v{v}:", name(answer.error_code))

    def fetch_offset(self, group: str, *, stable: bool) -> None:
        wanted = OffsetFetchRequestGroup(
            group_id=group, topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
        )
        answer = self.wire.request(OffsetFetchRequest(groups=[wanted], require_stable=stable), 8)
        (found,) = answer.groups
        offsets = [(p.committed_offset, name(p.error_code)) for t in found.topics for p in t.partitions]
        self.log(f"offset {group}{' stable' if stable else ''}:", name(found.error_code), offsets)

    def marker(
        self, pid: int, epoch: int, commit: bool, *, by: int = 0, version: int = 0, topic: str = TOPIC, part: int = 0
    ) -> None:
        marker = WritableTxnMarker(pid, epoch, commit, [TopicPartitionIndexes(topic, [part])], by, version)
        answer = self.wire.request(WriteTxnMarkersRequest(markers=[marker]), 2)
        results = [
            (
                self.producer(m.producer_id),
                [(p.partition_index, name(p.error_code)) for t in m.topics for p in t.partitions],
            )
            for m in answer.markers
        ]
        self.log(f"marker epoch {epoch} by {by} version {version}:", results)

    def list(self, **filters: Any) -> None:
        shown = {key: value for key, value in filters.items() if key != "producer_id_filters"}
        answer = self.wire.request(ListTransactionsRequest(**filters), 2)
        found = sorted(
            (t.transactional_id, self.producer(t.producer_id), t.transaction_state) for t in answer.transaction_states
        )
        self.log("list", shown, name(answer.error_code), answer.unknown_state_filters, found)

    def producers(self, part: int = 0) -> None:
        answer = self.wire.request(
            DescribeProducersRequest(topics=[TopicPartitionIndexes(name=TOPIC, partition_indexes=[part])])
        )
        found = [
            (
                self.producer(p.producer_id),
                p.producer_epoch,
                p.last_sequence,
                p.current_txn_start_offset,
                p.coordinator_epoch,
            )
            for p in answer.topics[0].partitions[0].active_producers
        ]
        self.log("producers:", sorted(found))


def record(port: int) -> list[str]:
    talk = RequestRecorder(port)
    topic = CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
    talk.wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    talk.wait_for_coordinator(TRANSACTION, "a")
    talk.wait_for_coordinator(GROUP, "g")
    talk.wait_for_offsets("g")
    unknown_ids(talk)
    version_0(talk)
    resuming(talk)
    fencing(talk)
    version_2(talk)
    versions_mixed(talk)
    return talk.lines


def unknown_ids(talk: RequestRecorder) -> None:
    """Send ids that are unknown or empty, or that come in the wrong request."""
    talk.init("")
    for timeout in (0, 900_001, -1):
        talk.init("a", timeout=timeout)
    talk.describe("nope")
    talk.describe("")
    talk.end("nope", 5, 0, True)
    talk.end("", 5, 0, True)
    talk.add("nope", 5, 0, {TOPIC: [0]})
    talk.add("", 5, 0, {TOPIC: [0]})
    talk.add_as_broker("nope", 5, 0, {TOPIC: [0]}, verify=True)
    talk.add_as_broker("", 5, 0, {TOPIC: [0]}, verify=True)
    talk.init("d", 5, -1)
    talk.init("d", -1, 3)


def version_0(talk: RequestRecorder) -> None:
    """Record transactions of a client that adds its partitions itself."""
    pid, epoch = talk.init("a", retry=True)
    talk.describe("a")
    talk.end("a", pid, epoch, True, v=4)
    talk.end("a", pid, epoch, False, v=4)
    talk.end("a", pid, epoch + 1, False, v=4)
    talk.end("a", pid + 999_999, epoch, False, v=4)
    talk.end("a", pid, epoch + 1, False, v=1)
    talk.add("a", pid, epoch, {TOPIC: [0], "nosuch": [0]})
    talk.add("a", pid, epoch, {TOPIC: [0, 7]})
    talk.describe("a")
    talk.produce("a", pid, epoch, 0, 9)
    talk.produce("a", pid, epoch, 0, 11)
    talk.produce(None, pid, epoch, 0, 11)
    talk.add("a", pid, epoch, {TOPIC: [0]})
    talk.describe("a")
    for version in (3, 1):
        talk.add("a", pid, epoch + 1, {TOPIC: [0]}, v=version)
    talk.produce("a", pid, epoch, 0, 9, n=3)
    talk.produce("a", pid, epoch, 3, 11, part=1)
    talk.fetch(0)
    talk.fetch(1)
    talk.producers()
    talk.produce("a", pid, epoch, 3, 9, txn=False)
    talk.add_offsets("a", pid, epoch, "g")
    talk.commit_offset("a", "g", pid, epoch, 42, v=3)
    talk.fetch_offset("g", stable=True)
    talk.fetch_offset("g", stable=False)
    talk.describe("a")
    talk.end("a", pid, epoch, True, v=4)
    talk.describe("a")
    talk.fetch(1)
    talk.fetch_offset("g", stable=True)
    talk.end("a", pid, epoch, True, v=4)
    talk.end("a", pid, epoch, False, v=4)
    talk.producers()
    talk.add("a", pid, epoch, {TOPIC: [0]})
    talk.produce("a", pid, epoch, 3, 9)
    talk.commit_offset("a", "g", pid, epoch, 50, v=3)
    talk.add_offsets("a", pid, epoch, "g")
    talk.commit_offset("a", "g", pid, epoch, 50, v=3)
    talk.fetch_offset("g", stable=True)
    talk.end("a", pid, epoch, False, v=4)
    talk.fetch(1)
    talk.fetch_offset("g", stable=True)
    talk.describe("a")


def resuming(talk: RequestRecorder) -> None:
    """Record how a producer resumes (KIP-360)."""
    found = talk.described("a")
    pid, epoch = found.producer_id, found.producer_epoch
    talk.init("a", pid, epoch)
    talk.init("a", pid, epoch)
    talk.init("a", pid, epoch + 7)
    talk.init("a", pid + 12_345, epoch)
    pid, epoch = talk.init("a")
    talk.init("a", pid, epoch - 1)
    talk.init("a", pid, epoch - 1, v=3)


def fencing(talk: RequestRecorder) -> None:
    """Record a new producer that starts while the old one has a transaction open, and the responses to the old one from then
    on.
    """
    found = talk.described("a")
    pid, epoch = found.producer_id, found.producer_epoch
    talk.add("a", pid, epoch, {TOPIC: [0]})
    talk.produce("a", pid, epoch, 0, 9)
    talk.init("a")
    talk.settle("a")
    talk.describe("a")
    talk.producers()
    talk.produce("a", pid, epoch, 1, 9)
    talk.produce("a", pid, epoch, 1, 11)
    talk.end("a", pid, epoch, True, v=4)
    talk.end("a", pid, epoch, True)
    talk.end("a", pid, epoch, False)
    talk.init("a", pid, epoch)
    talk.init("a")
    talk.fetch(1)


def version_2(talk: RequestRecorder) -> None:
    """Record transactions whose partitions the brokers add, each with an epoch of its own (KIP-890)."""
    pid, epoch = talk.init("b")
    talk.end("b", pid, epoch, True)
    pid, epoch = talk.end("b", pid, epoch, False)
    talk.describe("b")
    talk.producers(1)
    talk.produce("b", pid, epoch, 0, 12, part=1)
    talk.describe("b")
    talk.produce("b", pid, epoch, 1, 12, part=1)
    talk.commit_offset("b", "g", pid, epoch, 77)
    talk.describe("b")
    talk.fetch_offset("g", stable=True)
    talk.produce("b", pid, epoch + 1, 0, 12, part=1)
    talk.produce("b", pid, epoch + 1, 0, 12)
    talk.produce("b", pid, epoch - 1, 0, 12)
    talk.produce("b", pid + 777, epoch, 0, 12)
    after = talk.end("b", pid, epoch, True)
    talk.end("b", pid, epoch, True)
    talk.end("b", pid, epoch, False)
    talk.end("b", *after, True)
    talk.end("b", pid, epoch - 1, True)
    talk.end("b", pid, epoch + 2, True)
    talk.describe("b")
    talk.fetch_offset("g", stable=True)
    talk.producers(1)
    talk.produce("b", pid, epoch, 2, 12, part=1)
    talk.produce("b", *after, 5, 12, part=1)
    talk.produce("b", *after, 0, 12, part=1)
    talk.produce("b", *after, 0, 12, part=1)
    last = talk.end("b", *after, False)
    talk.end("b", *after, False)
    talk.fetch(1, part=1)
    talk.producers(1)
    pid, epoch = talk.end("b", *last, False)
    talk.describe("b")
    talk.produce("b", pid, epoch, 0, 12, part=1)
    talk.init("b")
    talk.settle("b")
    talk.describe("b")
    talk.init("b", pid, epoch)
    talk.init("b", pid, epoch)
    talk.producers(1)


def versions_mixed(talk: RequestRecorder) -> None:
    """Record a client that changes to version 2 in the middle, requests of brokers and administrators, and markers out of
    turn.
    """
    pid, epoch = talk.init("c")
    talk.add("c", pid, epoch, {TOPIC: [0]})
    talk.produce("c", pid, epoch, 0, 11)
    pid, epoch = talk.end("c", pid, epoch, True)
    talk.describe("c")
    talk.producers()
    talk.add_as_broker("c", pid, epoch, {TOPIC: [0]}, verify=True)
    talk.add_as_broker("c", pid, epoch, {TOPIC: [0]}, verify=False)
    for asked in ((pid, epoch), (pid, epoch - 1), (pid + 1234, epoch)):
        talk.add_as_broker("c", *asked, {TOPIC: [0, 1]}, verify=True)
    talk.add_as_broker("c", pid, epoch, {TOPIC: [9]}, verify=True)
    talk.describe("c")
    talk.commit_offset("c", "g", pid, epoch, 5, gen=3, member="x")
    talk.commit_offset("c", "new", pid, epoch, 5, gen=3, member="x")
    talk.commit_offset("c", "g", pid, epoch, 5, topic="nosuch")
    talk.commit_offset("nope", "g", pid, epoch, 5)
    talk.commit_offset("c", "g", pid, epoch + 5, 5)
    talk.commit_offset("c", "g2", pid, epoch, 5, v=4)
    talk.commit_offset("c", "g2", pid, epoch, 5, v=3)
    talk.commit_offset("", "g2", pid, epoch, 5)
    talk.list()
    for states in (["Ongoing"], ["Ongoing", "Bogus"], ["Bogus"]):
        talk.list(state_filters=states)
    talk.list(producer_id_filters=[pid])
    talk.list(duration_filter=100_000)
    talk.list(duration_filter=0)
    for pattern in ("[ab]", "(", ""):
        talk.list(transactional_id_pattern=pattern)
    talk.marker(pid, epoch, False)
    talk.describe("c")
    talk.marker(pid, epoch, False, topic="nosuch")
    talk.marker(pid, epoch, False, part=9)
    talk.marker(pid, epoch - 1, False)
    talk.marker(pid, epoch, True, by=-1)
    talk.marker(pid, epoch, True, version=2)
    talk.marker(pid, epoch + 1, True, version=2)
    talk.marker(pid, epoch + 1, True, version=2)
    talk.producers()
    talk.end("c", pid, epoch, True)
    talk.describe("c")
    talk.fetch(1)
    talk.log("no markers:", talk.wire.request(WriteTxnMarkersRequest(), 1).markers)
    talk.init("d", 5, 3)
    talk.init("d", 5, 3)
    talk.describe("d")
    talk.init(None)
    talk.init(None, 5, 3)


if __name__ == "__main__":
    print("\n".join(record(int(sys.argv[1]))))
