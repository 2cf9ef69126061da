"""The rate at which a share group reads: `python -m benchmarks.share`. Each record is acquired, delivered and acknowledged.

The goal: 20 members read 100,000 records a second of 100 bytes from 6 partitions, on 2 cores for the node and the clients. The
records are there before the members begin; a member accepts what it got with its next fetch, as KafkaShareConsumer does with
implicit acknowledgement. The clients are one process with one connection for each member, and do not look into the batches.
`--max-records` is max.poll.records of the members.
"""

from __future__ import annotations

import argparse
import select
import time
import uuid
from dataclasses import dataclass, field

from benchmarks.usage import cpu_seconds
from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.share_fetch import ShareFetchRequest
from ottla.protocol.messages.shared_structs import AcknowledgementBatch, AcknowledgePartition, AcknowledgeTopic
from ottla.protocol.records.builder import build_batch
from ottla.testing import Cluster
from tests.broker.wire import Wire

TOPIC, GROUP = "records", "readers"
RECORDS_OF_A_BATCH = 150
VALUE = b"v" * 100
ACCEPT = 1
GROUP_RESOURCE = 32
#: The settings of KafkaShareConsumer.
FETCH = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20}


@dataclass
class Member:
    wire: Wire
    topic_id: bytes
    partitions: int
    max_records: int
    member_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    epoch: int = 0
    read: int = 0
    #: partition -> the ranges to acknowledge as accepted
    held: dict[int, list[AcknowledgementBatch]] = field(default_factory=dict)

    def send(self) -> None:
        asked = dict.fromkeys(range(self.partitions)) if self.epoch == 0 else self.held
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            max_records=self.max_records,
            batch_size=self.max_records,
            topics=[
                AcknowledgeTopic(
                    self.topic_id, [AcknowledgePartition(index, self.held.get(index, [])) for index in asked]
                )
            ],
            **FETCH,
        )
        self.epoch += 1
        self.held = {}
        self.wire.send(request)

    def receive(self) -> int:
        """Receive a response; return its number of records."""
        response = self.wire.receive(ApiKey.SHARE_FETCH, 2)
        assert not response.error_code, response
        count = 0
        for topic in response.responses:
            for data in topic.partitions:
                assert not data.error_code and not data.acknowledge_error_code, data
                if data.acquired_records:
                    self.held[data.partition_index] = [
                        AcknowledgementBatch(each.first_offset, each.last_offset, [ACCEPT])
                        for each in data.acquired_records
                    ]
                    count += sum(each.last_offset - each.first_offset + 1 for each in data.acquired_records)
        self.read += count
        return count


def fill(wire: Wire, partitions: int, records: int) -> None:
    batch = build_batch([(None, VALUE, 1_700_000_000_000)] * RECORDS_OF_A_BATCH)
    for _ in range(records // (RECORDS_OF_A_BATCH * partitions) + 1):
        data = [PartitionProduceData(index, batch) for index in range(partitions)]
        answer = wire.request(
            ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(TOPIC, partition_data=data)]), 9
        )
        assert not any(each.error_code for each in answer.responses[0].partition_responses)


def prepare(wire: Wire, cluster: Cluster, partitions: int) -> bytes:
    wire.request(CreateTopicsRequest([CreatableTopic(TOPIC, partitions, 1)], timeout_ms=10_000))
    resource = AlterConfigsResource(GROUP_RESOURCE, GROUP, [AlterableConfig("share.auto.offset.reset", 0, "earliest")])
    wire.request(IncrementalAlterConfigsRequest([resource]))
    deadline = time.monotonic() + 30
    while len(cluster.leaders(TOPIC)) < partitions or -1 in cluster.leaders(TOPIC).values():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    topic_id = cluster.metadata([TOPIC]).topics[0].topic_id
    key = SharePartitionKey(GROUP, topic_id, 0).coordinator_key
    wire.request(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    states = InitializeStateData(topic_id, [PartitionData(index, 0, -1) for index in range(partitions)])
    while any(
        p.error_code for p in wire.request(InitializeShareGroupStateRequest(GROUP, [states])).results[0].partitions
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return topic_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--max-records", type=int, default=500)
    arguments = parser.parse_args()
    with Cluster(1, spoilable=False) as cluster, Wire(cluster.nodes[1].port) as wire:
        topic_id = prepare(wire, cluster, arguments.partitions)
        fill(wire, arguments.partitions, arguments.records)
        members = [
            Member(Wire(cluster.nodes[1].port), topic_id, arguments.partitions, arguments.max_records)
            for _ in range(arguments.members)
        ]
        by_socket = {member.wire.sock: member for member in members}
        before, began, read, fetches = cpu_seconds([cluster.pid(1)]), time.monotonic(), 0, 0
        own = time.process_time()
        for member in members:
            member.send()
        while read < arguments.records:
            for ready in select.select(list(by_socket), [], [], 10)[0]:
                member = by_socket[ready]
                read += member.receive()
                fetches += 1
                member.send()
        took = time.monotonic() - began
        cpu = cpu_seconds([cluster.pid(1)]) - before
        own = time.process_time() - own
        print(
            f"{len(members)} members, {arguments.partitions} partitions, max {arguments.max_records} records: {read:,} records in {took:.2f} s,"
            f" {read / took:,.0f} a second, {read / fetches:.0f} a fetch; CPU of the node {cpu:.2f} s ({cpu / read * 1e6:.2f} us a record),"
            f" of the clients {own:.2f} s"
        )


if __name__ == "__main__":
    main()
