"""Known mistakes of a controller and of its quorum, put into the real code at run time. See mutants.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.controller import runtime
from ottla.controller.decisions import broker_heartbeat, brokers, directories
from ottla.controller.decisions import control_state as state
from ottla.controller.decisions import partition_change as change
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.partition_change import PartitionChange
from ottla.controller.handlers import cluster as cluster_handlers
from ottla.controller.metadata.image import MetadataDelta
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.controller.raft.election_store import ElectionStore
from ottla.controller.raft.log_state import LogState
from ottla.protocol.internal_topics.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord

Patch = tuple[Any, str, Any]

_merge = PartitionRegistration.merge
_register_broker = brokers.register_broker
_append = runtime.Controller._append
_process_heartbeat = broker_heartbeat.process_heartbeat


def online_if_registered(directory: bytes, registered: Sequence[bytes]) -> bool:
    """KAFKA-16162: a broker that registered below metadata.version 17 has no directories, and so none that is online."""
    return directory in registered


def failed_directory_stays_eligible(
    state: Any, broker_id: int, offline: Sequence[bytes], leaving: Any = None
) -> list[Any]:
    broker = state.image.cluster.brokers[broker_id]
    lost = [directory for directory in broker.directories if directory in offline]
    if not lost:
        return []
    partitions = [
        key for key in state.index.in_isr(broker_id) if state.image.topics.partition(*key).directory(broker_id) in lost
    ]
    left = [directory for directory in broker.directories if directory not in lost]
    record = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=left)
    return [*state.leader_and_isr_changes(partitions, remove=broker_id), record]


def clean_by_the_mark_alone(state: Any, request: Any, leaving: Any) -> list[Any]:
    """Treat a stop as clean without asking whether the directory of a replica still exists."""
    former = state.image.cluster.brokers.get(request.broker_id)
    if former is None:
        return []
    if state.image.features.elr_enabled and former.epoch != request.previous_broker_epoch:
        keys = state.index.in_isr(request.broker_id) + state.index.in_elr(request.broker_id)
        return list(state.leader_and_isr_changes(keys, unclean_shutdown=request.broker_id))
    return list(state.leader_and_isr_changes(state.index.in_isr(request.broker_id), remove=request.broker_id))


def in_batches_of_two(self: runtime.Controller, state: Any, records: list[Any]) -> None:
    """Divide only registrations: the changes that a client requested stay atomic."""
    if not isinstance(records[-1], RegisterBrokerRecord):
        _append(self, state, records)
        return
    for start in range(0, len(records), 2):
        self._append_batch(state, records[start : start + 2])


def epoch_of_first_record(state: Any, request: Any, new_epoch: int, **given: Any) -> Any:
    outcome = _register_broker(state, request, new_epoch, **given)
    record = outcome.records[-1]
    if len(outcome.records) > 1:
        record.broker_epoch = new_epoch
    return outcome._replace(response=record.broker_epoch)


def all_have_caught_up(state: Any, heartbeats: Any, request: Any, **given: Any) -> Any:
    request.current_metadata_offset = 1 << 60
    return _process_heartbeat(state, heartbeats, request, **given)


def keep_leader_epoch(self: PartitionRegistration, record: Any) -> PartitionRegistration:
    return _merge(self, record)._replace(leader_epoch=self.leader_epoch)


def keep_partition_epoch(self: PartitionRegistration, record: Any) -> PartitionRegistration:
    return _merge(self, record)._replace(partition_epoch=self.partition_epoch)


def complete_at_once(removing: Any, adding: Any, replicas: Any, isr: Any) -> Any:
    """A reassignment does not wait for the new replicas."""
    if not removing and not adding:
        return None
    left = tuple(replica for replica in replicas if replica not in removing)
    in_sync = tuple(replica for replica in isr if replica in left)
    return left, in_sync or left[:1]


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def unclean_stays_eligible(self: PartitionChange) -> None:
    self.unclean_shutdown = frozenset()
    _populate_elr(self)


_populate_elr = PartitionChange._populate_elr

ALWAYS = property(lambda self: True)

#: name -> what it breaks, and the patches
CONTROLLER: dict[str, tuple[str, tuple[Patch, ...]]] = {
    "no-directory-is-offline": (
        "a broker registered below metadata.version 17 has no directory online (KAFKA-16162)",
        ((state, "is_directory_online", online_if_registered),),
    ),
    "failed-directory-stays-eligible": (
        "a replica of a failed log directory stays in the ELR, and comes back empty after a stop in order",
        (
            (broker_heartbeat, "offline_directories_records", failed_directory_stays_eligible),
            (brokers, "_former_incarnation_records", clean_by_the_mark_alone),
        ),
    ),
    "removed-directory-stays-eligible": (
        "a replica whose directory was taken out of log.dirs stays in the ELR",
        ((brokers, "_former_incarnation_records", clean_by_the_mark_alone),),
    ),
    "empty-replica-leads": (
        "the last known leader is elected although its log directory is lost and others have the records (KIP-966)",
        ((directories, "_is_empty_beside_others", lambda *_: False),),
    ),
    "epoch-of-first-record": (
        "a broker has caught up with the first of the batches of its registration",
        (
            (runtime.Controller, "_append", in_batches_of_two),
            (cluster_handlers, "register_broker", epoch_of_first_record),
        ),
    ),
    "caught-up-at-once": (
        "a broker is let in before it has read its registration",
        ((cluster_handlers, "process_heartbeat", all_have_caught_up),),
    ),
    "registers-without-waiting": (
        "a broker's registration is written in the first turn, with partitions of its former incarnation left for the others",
        ((Leaving, "is_done", ALWAYS),),
    ),
    "leader-epoch-stays": (
        "another leader gets the epoch of the one before",
        ((PartitionRegistration, "merge", keep_leader_epoch),),
    ),
    "partition-epoch-stays": (
        "a change of a partition does not raise its epoch",
        ((PartitionRegistration, "merge", keep_partition_epoch),),
    ),
    "reassignment-does-not-wait": (
        "a reassignment is complete before the new replicas are in sync",
        ((change, "completed", complete_at_once),),
    ),
    "unclean-stays-eligible": (
        "a broker that crashed leaves the ISR, and not the ELR (KIP-966)",
        ((PartitionChange, "_populate_elr", unclean_stays_eligible),),
    ),
    "snapshot-forgets-nothing": (
        "what a loaded snapshot does not name stays in the image",
        ((MetadataDelta, "finish_snapshot", nothing),),
    ),
}
QUORUM: dict[str, tuple[str, tuple[Patch, ...]]] = {
    "election-forgotten": (
        "a replica that restarts does not read what it voted",
        ((ElectionStore, "read", nothing),),
    ),
    "no-quorum-divergence": (
        "the quorum's leader does not look whether a replica's log fits its own",
        ((LogState, "validate", lambda self, fetched: None),),
    ),
    "fetched-is-flushed": (
        "a voter fetches on before what it has is on its disk",
        ((LogState, "is_flushed", property(lambda self: True)),),
    ),
}
#: The invariants that each mutant breaks. A mutant counts as caught only by one of these, because a mutant that fails with its
#: own exception proves nothing. Any invariant may notice a mutant that is not listed here.
BY: dict[str, str] = {
    "truncate-to-watermark": "1 2 3 4 5",
    "no-epoch-fence": "17",
    "no-divergence": "1 2 3 4 5",
    "epochs-not-kept": "1 2 3 4 5",
    "watermark-under-min-isr": "1 3 4 5 7",
    "watermark-without-slowest": "1 3 4 5 6 7",
    "proposal-forgotten": "1 3 4 5 6",
    "isr-before-answer": "1 3 4 5 6",
    "join-isr-early": "1 3 4 5",
    "acknowledge-early": "1 6 7",
    "follower-commits-alone": "2 3 4 5 9",
    "consumers-read-to-the-end": "2 9",
    "old-metadata": "23",
    "dedupe-window-of-zero": "13 26 27",
    "producers-forgotten": "13 26 27",
    "directory-not-synced": "1 3 4 5 7",
    "flush-does-nothing": "1 3 4 5 7",
    "no-compare-and-set": "1 3 4 5 17 22",
    "no-broker-epochs": "1 3 4 5 22",
    "unclean-election": "1 3 4 5",
    "unclean-stop-unnoticed": "1 3 4 5",
    "vote-not-durable": "18",
    "votes-for-all": "18 19",  # of two leaders in one epoch, the second may lack records that the first has committed
    "votes-for-any-log": "19",
    "commits-alone": "19",
    "metadata-not-flushed": "19",
    "answered-before-commit": "30 39",
    "no-stable-offset": "30 31",
    "no-directory-is-offline": "54",
    "failed-directory-stays-eligible": "1 3 4 5",
    "removed-directory-stays-eligible": "1 3 4 5",
    "empty-replica-leads": "1 3 4 5",
    "epoch-of-first-record": "23",
    "caught-up-at-once": "23",
    "registers-without-waiting": "1 3 4 5",
    "leader-epoch-stays": "17 22",
    "partition-epoch-stays": "22",
    "reassignment-does-not-wait": "1 3 4 5",
    "unclean-stays-eligible": "1 3 4 5",
    "snapshot-forgets-nothing": "21 22 25",
    "election-forgotten": "18",
    "no-quorum-divergence": "19",
    "fetched-is-flushed": "19",
}
