"""Empties the ELRs that a change of min.insync.replicas, or of eligible.leader.replicas.version to 0, would make wrong: in
turns, before the change.

Theory. A replica is eligible (KIP-966) because the high watermark stood still since it left the ISR: |ISR| was below
min.insync.replicas. A lower minimum lets the watermark of a led partition move on, to records that the eligible replica does not
have. So the ELR has to be empty before the leader learns of the lower minimum, and the log has the two in this order.

- A partition without a leader keeps its ELR: its watermark cannot move, whatever the minimum is. Kafka 4.3.1 empties these as well
  (one ClearElrRecord for the topic, or for all topics), and then nothing is left that may lead: a partition whose brokers were
  down when the minimum was altered stays offline for good, although its replicas come back with all records.
- A partition whose ISR is below the new minimum, too, keeps it for the same reason.
- If the feature is switched off, a partition without a leader gets its eligible replicas back into its ISR, where a partition
  without an ELR keeps the last of them.

Kafka's nodes read the same PartitionChangeRecords as after any election. They may be 200,000, and one record for all of them
took 4 s of one turn of the active controller. They are written in turns, so other decisions come in between: by
`ControlState.coming` these decisions already follow the change, and add no ELR that would have to be emptied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias, TypeVar

from ottla.controller.decisions.control_state import MIN_INSYNC_REPLICAS, ControlState
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import Decision, Outcome
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topics import NO_LEADER
from ottla.protocol.features import ELR_VERSION
from ottla.protocol.internal_topics.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
)

Response = TypeVar("Response")
Decide: TypeAlias = Callable[[ControlState], Outcome[Response]]

#: Looking at this many partitions that keep their ELR takes some 10 ms.
LOOKED_AT_PER_TURN = 4_000


def after_elrs(state: ControlState, decide: Decide[Response]) -> Decision[Response]:
    """Make the decision, after the ELRs that it would make wrong are empty. `decide` is called again in the last turn."""
    while state.coming is not None:
        yield []  # one such change at a time, because each starts from the result of the one before
    outcome = decide(state)
    if not state.image.features.elr_enabled or not any(map(_concerns_elrs, outcome.records)):
        return outcome
    state.coming = _replayed(state.image, outcome.records)
    try:
        yield from _emptying(state)
    finally:
        state.coming = None
    return decide(state)


def _concerns_elrs(record: MetadataRecord) -> bool:
    if isinstance(record, ConfigRecord):
        return record.name == MIN_INSYNC_REPLICAS
    return isinstance(record, FeatureLevelRecord) and record.name == ELR_VERSION


def _replayed(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(records)
    return delta.apply(image.offset, image.epoch)


def _emptying(state: ControlState) -> Iterator[list[MetadataRecord]]:
    records: list[MetadataRecord] = []
    for looked_at, key in enumerate(list(state.index.with_elr), 1):
        record = _emptied(state, key)
        if record is not None:
            records.append(record)
        if len(records) == PARTITIONS_PER_TURN or looked_at % LOOKED_AT_PER_TURN == 0:
            yield records
            records = []
    if records:
        yield records


def _emptied(state: ControlState, key: TopicIdPartition) -> PartitionChangeRecord | None:
    topic_id, index = key
    topic = state.image.topics.by_id(topic_id)
    partition = None if topic is None else topic.partitions.get(index)
    if topic is None or partition is None:
        return None  # the topic was deleted meanwhile
    if state.elr_enabled and (partition.leader == NO_LEADER or len(partition.isr) < state.min_isr(topic)):
        return None
    record = PartitionChangeRecord(
        partition_id=index, topic_id=topic_id, eligible_leader_replicas=[], last_known_elr=[]
    )
    if not partition.isr:
        record.isr = list(partition.elr or partition.last_known_elr)
    return record
