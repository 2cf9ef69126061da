"""The persister of a broker: calls are queued by share partition, sent to the coordinators together, and retried (KIP-932).

call     -> the queue of its share partition, which has one call in flight: order is kept, whatever is retried
flush    -> in the next turn of the loop some calls in front are grouped by coordinator, API and group, a request each
response -> a result for each share partition: its reply, or after a pause the next flush, if it still holds
write    -> updates that wait for another call of their share partition become one
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, NamedTuple

from ottla.broker.share.share_state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    Holds,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateSummary,
    StateUpdate,
)
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    shared_structs,
    write_share_group_state,
)
from ottla.protocol.messages.shared_structs import ReadStatePartition, ReadStateTopic
from ottla.protocol.slotted import entity, mutable
from ottla.server.clock import Clock
from ottla.server.network.context import Reply
from ottla.server.tasks import isolated

log = logging.getLogger(__name__)


#: Errors that pass, with the number of attempts that they are worth. A topic may be newer than the coordinator's metadata.
ATTEMPTS = {
    ErrorCode.NOT_COORDINATOR: 40,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 40,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 40,
    ErrorCode.NETWORK_EXCEPTION: 40,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 5,
}
#: 40 attempts take half a minute, longer than a broker's session and an election.
RETRY_MS, RETRY_MS_MAX = 50, 1_000
#: A group may begin with thousands of share partitions; of 200 whose coordinator is this broker each takes some 40 us.
CALLS_PER_TURN = 200


class PersisterApi(NamedTuple):
    """One of the five requests, whose shapes are the same: the struct of a topic, and the value of a share partition's result."""

    key: ApiKey
    topic: Callable[[bytes, list[Any]], object]
    value: Callable[[Any], object] = lambda result: None


INITIALIZE = PersisterApi(ApiKey.INITIALIZE_SHARE_GROUP_STATE, initialize_share_group_state.InitializeStateData)
READ = PersisterApi(
    ApiKey.READ_SHARE_GROUP_STATE,
    ReadStateTopic,
    lambda result: ShareState(
        result.state_epoch,
        result.start_offset,
        [StateBatch(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in result.state_batches],
    ),
)
WRITE = PersisterApi(ApiKey.WRITE_SHARE_GROUP_STATE, write_share_group_state.WriteStateData)
DELETE = PersisterApi(ApiKey.DELETE_SHARE_GROUP_STATE, delete_share_group_state.DeleteStateData)
SUMMARIZE = PersisterApi(
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    ReadStateTopic,
    lambda result: StateSummary(
        result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count
    ),
)


@entity
class Call:
    api: PersisterApi
    key: SharePartitionKey
    data: Any
    replies: list[Reply[Any]]
    holds: Holds
    attempts: int = 0


def always() -> bool:
    """Return the token of calls that the share coordinator fences by itself, because they carry the leader's epoch, or only read."""
    return True


@mutable
class StatePersister:
    """The persister of a broker. `coordinator_of` gives the broker that coordinates a share partition, -1 while there is none, None if the topic is missing;
    `send` asks a broker, this one too; `create_topic` has `__share_group_state` created.
    """

    clock: Clock
    coordinator_of: Callable[[SharePartitionKey], int | None]
    send: Callable[[int, object], Reply[Any]]
    create_topic: Callable[[], None]
    _queues: dict[SharePartitionKey, deque[Call]] = field(default_factory=dict)
    #: Share partitions whose first call is to be sent.
    _ready: list[SharePartitionKey] = field(default_factory=list)

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        return self._call(READ, key, ReadStatePartition(key.partition, leader_epoch))

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        data = write_share_group_state.PartitionData(
            key.partition,
            update.state_epoch,
            update.leader_epoch,
            update.start_offset,
            update.delivery_complete_count,
            [shared_structs.StateBatch(*batch) for batch in update.batches],
        )
        queue = self._queues.get(key)
        # The first call may be in flight.
        if queue is not None and len(queue) > 1 and queue[-1].api is WRITE and _merge(queue[-1].data, data):
            reply: Reply[None] = Reply()
            queue[-1].replies.append(reply)
            return reply
        return self._call(WRITE, key, data)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, holds: Holds) -> Reply[None]:
        data = initialize_share_group_state.PartitionData(key.partition, state_epoch, start_offset)
        return self._call(INITIALIZE, key, data, holds)

    def delete(self, key: SharePartitionKey, holds: Holds) -> Reply[None]:
        return self._call(DELETE, key, delete_share_group_state.PartitionData(key.partition), holds)

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        return self._call(SUMMARIZE, key, ReadStatePartition(key.partition, leader_epoch))

    def _call(self, api: PersisterApi, key: SharePartitionKey, data: object, holds: Holds = always) -> Reply[Any]:
        reply: Reply[Any] = Reply()
        queue = self._queues.setdefault(key, deque())
        queue.append(Call(api, key, data, [reply], holds))
        if len(queue) == 1:
            self._send_soon(key)
        return reply

    def _send_soon(self, key: SharePartitionKey) -> None:
        self._ready.append(key)
        if len(self._ready) == 1:
            self.clock.call_later(0, self._flush)

    def _flush(self) -> None:
        ready, self._ready = self._ready[:CALLS_PER_TURN], self._ready[CALLS_PER_TURN:]
        if self._ready:
            self.clock.call_later(0, self._flush)
        requests: dict[tuple[int, str, PersisterApi], list[Call]] = {}
        is_missing = False
        for key in ready:
            call = self._queues[key][0]
            if not call.holds():
                self._ended(call, KafkaError(ErrorCode.NOT_COORDINATOR))
                continue
            node_id = self.coordinator_of(key)
            is_missing = is_missing or node_id is None
            if node_id is None or node_id < 0:
                self._failed(call, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            else:
                requests.setdefault((node_id, key.group_id, call.api), []).append(call)
        if is_missing:
            self.create_topic()
        for (node_id, group_id, api), calls in requests.items():
            topics: dict[bytes, list[Any]] = {}
            for call in calls:
                topics.setdefault(call.key.topic_id, []).append(call.data)
            rows = [api.topic(topic_id, data) for topic_id, data in topics.items()]
            request = APIS[api.key].request(group_id, rows)
            self.send(node_id, request).when_done(partial(self._answered, calls))

    def _answered(self, calls: list[Call], response: Any) -> None:
        results: dict[tuple[bytes, int], Any] = {}
        if not isinstance(response, KafkaError):
            results = {
                (topic.topic_id, result.partition): result for topic in response.results for result in topic.partitions
            }
        for call in calls:
            result = results.get(call.key[1:])
            if isinstance(response, KafkaError):
                self._failed(call, response)
            elif result is None:
                self._ended(call, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the share partition"))
            elif result.error_code:
                self._failed(call, KafkaError(ErrorCode(result.error_code), result.error_message))
            else:
                self._ended(call, call.api.value(result))

    def _failed(self, call: Call, error: KafkaError) -> None:
        call.attempts += 1
        if call.attempts >= ATTEMPTS.get(error.code, 0):
            log.info("share partition %s: %s", call.key.coordinator_key, error)
            self._ended(call, error)
            return
        pause_ms = min(RETRY_MS << min(call.attempts, 10), RETRY_MS_MAX)
        self.clock.call_later(pause_ms, partial(self._send_soon, call.key))

    def _ended(self, call: Call, outcome: object) -> None:
        queue = self._queues[call.key]
        queue.popleft()
        if queue:
            self._send_soon(call.key)
        else:
            del self._queues[call.key]
        for reply in call.replies:
            isolated(reply.complete, outcome)


def _merge(waiting: write_share_group_state.PartitionData, newer: write_share_group_state.PartitionData) -> bool:
    """Add the newer update to the one that waits; not if it is another leader's, or of another state."""
    if (waiting.leader_epoch, waiting.state_epoch) != (newer.leader_epoch, newer.state_epoch):
        return False
    if newer.start_offset != UNINITIALIZED_START_OFFSET:
        waiting.start_offset = newer.start_offset
    if newer.delivery_complete_count != UNKNOWN_COUNT:
        waiting.delivery_complete_count = newer.delivery_complete_count
    waiting.state_batches.extend(newer.state_batches)
    return True
