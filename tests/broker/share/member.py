"""A member of a share group over our own wire codec: heartbeats, share sessions, records, acknowledgements. No JVM."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.shared_structs import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    TopicIdPartitions,
)
from ottla.protocol.records.batch import iter_batches
from tests.broker.share.state_client import StateClient
from tests.broker.wire import Wire

GROUP_RESOURCE = 32
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
#: topic id, partition
At = tuple[bytes, int]
#: first offset, last offset, types
Batch = tuple[int, int, list[int]]


def set_group(wire: Wire, group: str, **configs: str) -> None:
    """Set the configurations of a group, which have underscores for the dots of their names."""
    changes = [AlterableConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()]
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=changes)
    answer = wire.request(IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer


def initialize(wire: Wire, group: str, at: At) -> None:
    """Give the share partition its state, as the group coordinator does before the first assignment."""
    topic_id, index = at
    key = SharePartitionKey(group, topic_id, index).coordinator_key
    # Makes the node create __share_group_state.
    wire.request(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 6)
    state = StateClient(wire, group, topic_id, index)
    deadline = time.monotonic() + 30
    while (code := state.initialize().error_code) != 0:
        assert time.monotonic() < deadline, f"the share state could not be initialized: {code}"
        time.sleep(0.05)


@dataclass
class Delivered:
    """The records that one ShareFetch returned for one partition, by offset, with their delivery counts."""

    error: int = 0
    acknowledge_error: int = 0
    records: dict[int, bytes | None] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    acquired: list[tuple[int, int, int]] = field(default_factory=list)


class ShareMember:
    """A member with one connection, to the broker that leads its partitions."""

    def __init__(self, wire: Wire, group: str, partitions: Sequence[At], member_id: str | None = None) -> None:
        self.wire = wire
        self.group = group
        self.partitions = list(partitions)
        self.member_id = member_id or str(uuid.uuid4())
        self.epoch = 0

    def heartbeat(self, topics: Sequence[str] | None, member_epoch: int = 0, wire: Wire | None = None) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=member_epoch,
            subscribed_topic_names=None if topics is None else list(topics),
        )
        return (wire or self.wire).request(request)

    # -- Fetching ----------------------------------------------------------------------------------------------------

    def fetch(
        self,
        acknowledgements: dict[At, Sequence[Batch]] | None = None,
        *,
        forget: Sequence[At] = (),
        version: int | None = None,
        **fields: Any,
    ) -> dict[At, Delivered]:
        response = self.fetch_response(acknowledgements, forget=forget, version=version, **fields)
        assert response.error_code == 0, response
        return delivered(response)

    def fetch_response(
        self,
        acknowledgements: dict[At, Sequence[Batch]] | None = None,
        *,
        forget: Sequence[At] = (),
        version: int | None = None,
        **fields: Any,
    ) -> ShareFetchResponse:
        self.wire.send(self.fetch_request(acknowledgements, forget=forget, **fields), version)
        return self.fetched(version or 2)

    def fetch_request(
        self, acknowledgements: dict[At, Sequence[Batch]] | None = None, *, forget: Sequence[At] = (), **fields: Any
    ) -> ShareFetchRequest:
        """Return the next request of the session."""
        none: Sequence[Batch] = ()
        asked = dict.fromkeys(self.partitions if self.epoch == 0 else (), none) | dict(acknowledgements or {})
        limits = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 25, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.member_id,
            share_session_epoch=self.epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id, [AcknowledgePartition(index, [AcknowledgementBatch(*batch) for batch in batches])]
                )
                for (topic_id, index), batches in asked.items()
            ],
            forgotten_topics_data=[TopicIdPartitions(topic_id, [index]) for topic_id, index in forget],
            **(limits | fields),
        )
        self.epoch += 1
        return request

    def fetched(self, version: int = 2) -> ShareFetchResponse:
        response: ShareFetchResponse = self.wire.receive(ApiKey.SHARE_FETCH, version)
        if response.error_code:
            self.epoch = 0
        return response

    # -- Acknowledging -----------------------------------------------------------------------------------------------

    def acknowledge(self, at: At, *batches: Batch, **fields: Any) -> int:
        """Acknowledge the batches; return the partition's error code."""
        response = self.acknowledge_response({at: batches}, **fields)
        assert response.error_code == 0, response
        [topic] = response.responses
        [partition] = topic.partitions
        return partition.error_code

    def acknowledge_response(
        self, acknowledgements: dict[At, Sequence[Batch]], version: int | None = None, **fields: Any
    ) -> ShareAcknowledgeResponse:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.member_id,
            topics=[
                AcknowledgeTopic(topic_id, [AcknowledgePartition(index, [AcknowledgementBatch(*b) for b in batches])])
                for (topic_id, index), batches in acknowledgements.items()
            ],
            **({"share_session_epoch": self.epoch} | fields),
        )
        self.epoch += 1
        response: ShareAcknowledgeResponse = self.wire.request(request, version)
        return response

    def leave(self) -> None:
        """Send the last request of the session, which releases everything that the member holds."""
        self.epoch = -1
        response = self.acknowledge_response({})
        assert response.error_code == 0, response


def delivered(response: ShareFetchResponse) -> dict[At, Delivered]:
    found = {}
    for topic in response.responses:
        for partition in topic.partitions:
            one = found[topic.topic_id, partition.partition_index] = Delivered(
                partition.error_code, partition.acknowledge_error_code
            )
            one.acquired = [(a.first_offset, a.last_offset, a.delivery_count) for a in partition.acquired_records]
            values = {
                record.offset: record.value
                for batch in iter_batches(memoryview(bytes(partition.records or b"")))
                for record in ([] if batch.is_control else batch.iter_records())
            }
            for first, last, count in one.acquired:
                for offset in range(first, last + 1):
                    if offset in values:
                        value = values[offset]
                        one.records[offset] = None if value is None else bytes(value)
                        one.counts[offset] = count
    return found
