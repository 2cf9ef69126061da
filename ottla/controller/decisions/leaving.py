"""Partitions of a broker that are too many for one turn of the event loop: a decision about one takes some 50 us.

A fenced broker may be in ten thousand ISRs, and an unfenced one may be the only possible leader of as many partitions. The fencing
itself and the first of them are decided at once, the others in later turns (periodic.py). A change of the active controller loses
nothing: the partitions that are left follow from the image, and the next active controller begins with them, broker by broker.
Until its turn, a partition's leader and ISR are those from before the broker's change. That is safe, because a fenced broker
with the old epoch still has its records.

Registration after an unclean stop, unregistration and lost directories have to take the broker out of its ISRs and ELRs
*before* their own record: a reader of that record must not find a replica in sync that lost its tail (invariants 5 and 23).
12,000 partitions in one decision held the event loop for 0.3 s. So the request is decided in several turns, each of which
decides about PARTITIONS_PER_TURN partitions, appends and replays; only the turn after which none is left writes the record.
Why that is as safe as one decision:

- The last turn is the old decision as it was: it checks the request again, looks at every partition that the broker still
  holds, and writes their changes in one outcome with the record. The turns before it only make its list shorter.
- What such a turn writes is right by itself. The broker asked because its data may be lost, or it has a new process: without
  the record it only stays out of sets that it could be in. It is fenced by the first turn, so that no other decision elects
  it or takes it into an ISR meanwhile, and so it is never led by a life of it that is over.
- When the controller fails in between, the old registration stands, fenced. The broker gets NOT_CONTROLLER or no answer and
  repeats the request, and the next controller begins with whatever the broker holds then. Only the registration record
  makes a new broker epoch, its own offset, and before that the new process neither fetches nor leads.
- Other decisions come in between: they may move a partition to another directory, elect, or delete the topic. A partition
  counts as decided only while its registration is, with its partition epoch, the one that was decided; else it is looked at
  again. What the decision was made by (`basis`: the registration, the feature levels) may change as well, for example when
  two processes register at once and the other one is faster: then everything is looked at again, and the request is judged
  as if it had just arrived.
- It ends: a fenced broker enters no ISR, and without the ELR the last member of an ISR, which stays in it, counts as decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.internal_topics.metadata_records import MetadataRecord

#: Deciding, replaying and encoding this many takes some 25 ms.
PARTITIONS_PER_TURN = 400


def electable(state: ControlState, broker_id: int) -> list[TopicIdPartition]:
    """Yield partitions without a leader that this broker could lead: cleanly, as the last known leader, or if unclean
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
    """Yield the partitions that are still to be decided after the broker was fenced or unfenced."""
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None:
        return []
    return state.index.in_isr(broker_id) if broker.fenced else electable(state, broker_id)


def settle(state: ControlState, partitions: Iterable[TopicIdPartition]) -> Outcome[None]:
    """Remove fenced brokers from the ISRs, and elect leaders."""
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


class Leaving:
    """One request: the partitions that it has decided about in the turns so far, and the result of each."""

    __slots__ = ("_basis", "_decided", "_todo")

    def __init__(self) -> None:
        self._basis: object = None
        self._decided: dict[TopicIdPartition, PartitionRegistration] = {}
        self._todo: list[TopicIdPartition] = []

    @property
    def is_done(self) -> bool:
        """Return True if the partitions of this turn were the last ones."""
        return not self._todo

    def start_over(self) -> None:
        """Start again with all partitions of the broker, because its registration has changed."""
        self._basis = None
        self._decided.clear()
        self._todo = []

    def partitions(
        self, state: ControlState, basis: object, held: Callable[[], Iterable[TopicIdPartition]]
    ) -> list[TopicIdPartition]:
        """Return the partitions of `held` to decide about in this turn."""
        if basis != self._basis:
            self.start_over()
            self._basis = basis
        if len(self._todo) <= PARTITIONS_PER_TURN:
            # Other decisions came in between, so a scan of all partitions must confirm that these are the last.
            self._todo = [key for key in dict.fromkeys(held()) if self._is_left(state, key)]
        some, self._todo = self._todo[:PARTITIONS_PER_TURN], self._todo[PARTITIONS_PER_TURN:]
        return [key for key in some if state.image.topics.partition(*key) is not None]

    def decided(self, state: ControlState, partitions: Iterable[TopicIdPartition], records: Sequence[Any]) -> None:
        """The records are the changes of these partitions; those without one stay as they are."""
        for key in partitions:
            partition = state.image.topics.partition(*key)
            assert partition is not None
            self._decided[key] = partition
        for record in records:
            key = (record.topic_id, record.partition_id)
            self._decided[key] = self._decided[key].merge(record)

    def _is_left(self, state: ControlState, key: TopicIdPartition) -> bool:
        decided = self._decided.get(key)
        return decided is None or decided != state.image.topics.partition(*key)


def held_by(state: ControlState, broker_id: int) -> list[TopicIdPartition]:
    """Return the partitions that have the broker in the ISR or the ELR; those that it leads come first, and get another leader first."""
    index = state.index
    return list(dict.fromkeys(index.led_by(broker_id) + index.in_isr(broker_id) + index.in_elr(broker_id)))


def unclean_records(state: ControlState, broker_id: int, leaving: Leaving) -> list[Any]:
    """Return the records of this turn: the broker leaves the ISR and ELR of each of its partitions."""
    basis = ("all", state.image.cluster.brokers[broker_id].epoch, state.image.features)
    partitions = leaving.partitions(state, basis, lambda: held_by(state, broker_id))
    records = list(state.leader_and_isr_changes(partitions, unclean_shutdown=broker_id))
    leaving.decided(state, partitions, records)
    return records
