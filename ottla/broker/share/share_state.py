"""The state of a share partition in the form that leaders, the share coordinator and the records of `__share_group_state` share
(KIP-932).

Leaders and the group coordinator reach it by the persister. Each call is about one share partition. Calls that are made in one turn of
the loop go to their coordinators together. The reply is completed in a later turn, with a KafkaError where the call failed for good:
errors that pass (no coordinator yet, loading, a lost connection) were retried before, with a growing pause. What the coordinator refused
is not retried: FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH, INVALID_REQUEST (the share partition was never initialized),
UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from ottla.protocol.errors import KafkaError
from ottla.protocol.primitives import uuid_from_str, uuid_to_str
from ottla.protocol.slotted import frozen
from ottla.server.clock import Clock
from ottla.server.network.context import Reply

#: The group has no start offset yet: the leader takes that of share.auto.offset.reset. In an update the value stays as it was.
UNINITIALIZED_START_OFFSET = -1
#: The number of finished deliveries in an update that does not know it (KIP-1226).
UNKNOWN_COUNT = -1


class SharePartitionKey(NamedTuple):
    """One partition of one group."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key of FindCoordinator, whose hash also chooses the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_to_str(self.topic_id)}:{self.partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Return the key of a FindCoordinator for a share partition; ValueError says what is wrong. A group id may have colons."""
    if not text:
        raise ValueError("Share partition key cannot be empty.")
    group_and_topic, _, partition = text.rpartition(":")
    group_id, _, topic_id = group_and_topic.rpartition(":")
    if not group_id.strip() or not topic_id.strip():
        raise ValueError(f"Invalid key format: expected - groupId:topicId:partition, found -  {text}")
    return SharePartitionKey(group_id, uuid_from_str(topic_id), int(partition))


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset`, both included, in the same state after as many deliveries."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class ShareState(NamedTuple):
    """The state that a leader reads when it begins with a share partition."""

    state_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]


class StateUpdate(NamedTuple):
    """The change that a leader writes: batches that changed, and the new start offset."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    batches: Sequence[StateBatch]
    delivery_complete_count: int = UNKNOWN_COUNT


class StateSummary(NamedTuple):
    """The part of the state that the group coordinator reads for DescribeShareGroupOffsets."""

    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int


#: Returns True while the broker still coordinates the group, as it did when it asked.
Holds = Callable[[], bool]

K = TypeVar("K")
T = TypeVar("T")


class Persister(Protocol):
    """Keeps share state. A `Reply[None]` is completed with None when the state is committed, else with the KafkaError."""

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        """Return the state, from now on written by a leader of this epoch or a later one only."""
        ...

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        """Merge the update into the state. Updates of one share partition are applied in the order of their calls."""
        ...

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, holds: Holds) -> Reply[None]:
        """Begin a new state without batches; a state of an older epoch is over, and its leader is fenced.

        The request is neither sent nor retried once `holds` returns False; the same is true of `delete`. The group's next
        coordinator sends a request of its own, and a retry of the deposed one must not undo what members have done since.
        """
        ...

    def delete(self, key: SharePartitionKey, holds: Holds) -> Reply[None]:
        """Delete the state. The call also succeeds if there is none."""
        ...

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        """Return epochs and start offset, for administration; the leader epoch is not raised."""
        ...


def outcomes_of(calls: Mapping[K, Reply[T]]) -> Reply[dict[K, T | KafkaError]]:
    """Return the outcome of each call, once all of them are there."""
    outcomes: dict[K, T | KafkaError] = {}
    reply: Reply[dict[K, T | KafkaError]] = Reply()

    def arrived(key: K, outcome: T | KafkaError) -> None:
        outcomes[key] = outcome
        if len(outcomes) == len(calls):
            reply.complete(outcomes)

    for key, call in calls.items():
        call.when_done(partial(arrived, key))
    if not calls:
        reply.complete(outcomes)
    return reply


def errors_of(outcomes: Mapping[K, object]) -> dict[K, KafkaError]:
    """Return the calls that have failed."""
    return {key: outcome for key, outcome in outcomes.items() if isinstance(outcome, KafkaError)}


@frozen
class NoPersister:
    """The `Persister` that keeps nothing."""

    clock: Clock

    def read(self, key: SharePartitionKey, leader_epoch: int) -> Reply[ShareState]:
        return self._later(ShareState(0, UNINITIALIZED_START_OFFSET, ()))

    def write(self, key: SharePartitionKey, update: StateUpdate) -> Reply[None]:
        return self._later(None)

    def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int, holds: Holds) -> Reply[None]:
        return self._later(None)

    def delete(self, key: SharePartitionKey, holds: Holds) -> Reply[None]:
        return self._later(None)

    def read_summary(self, key: SharePartitionKey, leader_epoch: int) -> Reply[StateSummary]:
        return self._later(StateSummary(0, 0, UNINITIALIZED_START_OFFSET, UNKNOWN_COUNT))

    def _later(self, value: T) -> Reply[T]:
        reply: Reply[T] = Reply()
        self.clock.call_later(0, lambda: reply.complete(value))
        return reply
