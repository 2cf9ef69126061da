"""Partitions that a decision about a broker did not change yet, because they were too many for one turn of the event loop.

A fenced broker may be in ten thousand ISRs, and an unfenced one may be the only possible leader of as many partitions.
The decision about a partition takes some 50 us, so a turn decides about a bounded number: the fencing itself and the first
of them at once, the others in later turns (periodic.py). A change of the active controller loses nothing: the partitions that
are left follow from the image, and the next active controller begins with them, broker by broker.

Until its turn, a partition's leader and ISR are those from before the broker's change. That is safe, because a fenced broker
with the old epoch still has its records.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.outcome import Outcome
from ottla.protocol.internal_topics.metadata_records import MetadataRecord

#: Deciding, replaying and encoding this many takes some 25 ms.
PARTITIONS_PER_TURN = 400


def electable(state: ControlState, broker_id: int) -> list[TopicIdPartition]:
    """Yields partitions without a leader that this broker could lead: cleanly, as the last known leader, or if unclean
    elections are enabled."""
    found = dict.fromkeys(state.index.waits_for(broker_id))
    allowed: dict[bytes, bool] = {}
    for key in state.index.leaderless_of(broker_id):
        is_allowed = allowed.get(key[0])
        if is_allowed is None:
            topic = state.image.topics.by_id(key[0])
            is_allowed = allowed[key[0]] = topic is not None and state.unclean_election(topic.name)
        if is_allowed:
            found[key] = None
    return list(found)


def left_by_broker(state: ControlState, broker_id: int) -> list[TopicIdPartition]:
    """Yields the partitions that are still to be decided after the broker was fenced or unfenced."""
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None:
        return []
    return state.index.in_isr(broker_id) if broker.fenced else electable(state, broker_id)


def settle(state: ControlState, partitions: Iterable[TopicIdPartition]) -> Outcome[None]:
    """Removes fenced brokers from the ISRs, and elects leaders."""
    brokers = state.image.cluster.brokers
    records: list[MetadataRecord] = []
    for topic_id, index in islice(partitions, PARTITIONS_PER_TURN):
        topic = state.image.topics.by_id(topic_id)
        partition = None if topic is None else topic.partitions.get(index)
        if topic is None or partition is None:
            continue  # the topic was deleted meanwhile
        change = state.change(topic, index, partition)
        change.isr = tuple(each for each in partition.isr if each in brokers and not brokers[each].fenced)
        record = change.record()
        if record is not None:
            records.append(record)
    return Outcome(records, None)
