"""Known mistakes of replicated logs, put into the real code at run time: each must be noticed within 200 seeds.

A mutant names what it breaks and says which attribute of which object is replaced by what. One that is never noticed means
that the simulator, or what it looks at, has become too tame.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ottla.broker.broker_node import BrokerNode
from ottla.broker.coordinator.context import CoordinatorContext
from ottla.broker.fetch import reader
from ottla.broker.fetch.handler import PendingFetch
from ottla.broker.fetch.reader import SessionReader
from ottla.broker.fetch.session import FetchSession
from ottla.broker.groups import heartbeats
from ottla.broker.groups.consumer.consumer_group import ConsumerGroup
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.produce import handler as produce_handler
from ottla.broker.replication.follower_session import FollowerSession, Wait
from ottla.broker.replication.isr import InSyncReplicas
from ottla.broker.replication.log_moves import LogMoves
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.truncation import Basis
from ottla.broker.transactions.transaction_shard import TransactionShard
from ottla.controller.decisions import alter_partition, brokers
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.raft import log_flusher, roles
from ottla.controller.raft.election_store import ElectionStore
from ottla.controller.raft.leader import Leader
from ottla.node import formatting
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.context import then
from ottla.storage.directories import future_logs
from ottla.storage.epochs import LeaderEpochs
from ottla.storage.log import replay
from ottla.storage.log.durability import Durability
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import truncate_to
from ottla.storage.producers.producer_snapshots import Decoded
from ottla.storage.producers.producer_states import ProducerState
from ottla.storage.segment.segment_file import SegmentFile
from tests.broker.groups import mutants as group_mutants
from tests.broker.transactions import mutants as transaction_mutants
from tests.histories import Mutant, Patch
from tests.sim import controller_mutants
from tests.sim.group_mutants import SHARE, STREAMS


def nothing(*args: Any, **kwargs: Any) -> None:
    return None


def always(*args: Any, **kwargs: Any) -> bool:
    return True


ALWAYS = property(lambda self: True, lambda self, value: None)

_become_leader = Partition.become_leader
_become_follower = Partition.become_follower
_append_as_follower = Partition.append_as_follower
_advance_high_watermark = Partition.advance_high_watermark
_read = SessionReader.read
_write_vote = ElectionStore.write
_start_broker = BrokerNode.start
_log_read = Log.read
_copy_some = future_logs.copy_some
_fetch_response = PendingFetch.response
_end_wait = FollowerSession.end


def forget_proposal(self: Partition, log: Log, leader_epoch: int, partition_epoch: int, *args: Any) -> None:
    """Metadata with a partition epoch that a response to AlterPartition has already brought counts as new (Kafka's `<`)."""
    if self.is_leader and (leader_epoch, partition_epoch) == (self.leader_epoch, self.isr.partition_epoch):
        self.isr._wait_for(None, self.isr.members)
    _become_leader(self, log, leader_epoch, partition_epoch, *args)


def follow_from_high_watermark(self: Partition, *args: Any, **kwargs: Any) -> None:
    """Truncate as before KIP-101: everything above the watermark is removed, although the leader may have acknowledged it."""
    _become_follower(self, *args, **kwargs)
    if self.log is not None and self.log.high_watermark < self.log.log_end_offset:
        truncate_to(self.log, self.log.high_watermark)


def local_log_of_any_epoch(self: Partition, current_leader_epoch: int, *, require_leader: bool) -> Log:
    if self.offline or self.log is None or (require_leader and not self.is_leader):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return self.log


def watermark_below_min_isr(self: Partition, **kwargs: bool) -> None:
    is_under_min, self.isr.is_under_min = self.isr.is_under_min, False
    try:
        _advance_high_watermark(self, **kwargs)
    finally:
        self.isr.is_under_min = is_under_min


def watermark_without_slowest(self: InSyncReplicas, end: int, clock: Any) -> int:
    """One member of the ISR is not waited for."""
    waited = sorted(f.log_end_offset for f in self.followers.values() if f.broker_id in self.maximal)[1:]
    return min([end, *waited])


def isr_before_answer(self: InSyncReplicas, members: frozenset[int]) -> None:
    """A proposed ISR is used at once, although the controller may still elect from the old one."""
    assert self._proposals is not None
    self.members = members
    self._wait_for(members, members)
    self._proposals.submit(self._partition)


def join_at_once(self: InSyncReplicas, follower: Any, *offsets: int) -> bool:
    return (
        follower.broker_id not in self.maximal
        and self._proposals is not None
        and self._proposals.may_be_in_sync(follower.broker_id, follower.broker_epoch)
    )


def write_vote_without_sync(self: ElectionStore, election: Any, kraft_version: int, voter_ids: Any) -> None:
    files = self._files
    write = files.write_atomic
    try:
        files.write_atomic = lambda path, data, sync=True: write(path, data, sync=False)
        _write_vote(self, election, kraft_version, voter_ids)
    finally:
        del files.write_atomic


def vote_for_all(self: Any, candidate: Any, log_is_up_to_date: bool, pre_vote: bool) -> bool:
    return log_is_up_to_date


def vote_for_any_log(self: Any, candidate: Any, log_is_up_to_date: bool, pre_vote: bool) -> bool:
    return self.voted is None or self.voted == candidate


def commit_leaders_log(self: Leader) -> bool:
    reached = max((progress.end_offset for progress in self.voters.values()), default=-1)
    if reached <= max(self.epoch_start_offset, self.high_watermark):
        return False
    self.high_watermark = reached
    return True


def end_any_wait(self: FollowerSession, wait: Wait, until_ms: int) -> Partition | None:
    """Any wait ends now, no matter for which leader epoch."""
    followed = self.followed.get(wait.key)
    return None if followed is None else _end_wait(self, followed.wait or wait, until_ms)


def role_of_the_same_name(self: Basis) -> bool:
    return not self.partition.is_leader and self.partition.leader_epoch == self.leader_epoch


def truncate_what_is_acknowledged(self: Partition, offset: int, decoded: Decoded | None = None) -> None:
    """The assertion of `truncate_as_follower` would notice this mutant, and must not be the only check that does."""
    assert self.log is not None
    truncate_to(self.log, offset, decoded)


async def flush_nothing(self: log_flusher.LogFlusher) -> None:
    self.is_wanted = self.is_running = False
    self._on_flushed(log_flusher.Flushed(self._state.log.generation, self._state.log.end_offset))


def any_epoch_of_partition(broker_id: int, partition: Any, wanted: Any) -> None:
    if broker_id != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST)


def former_is_clean(state: ControlState, request: Any, leaving: Any) -> list[Any]:
    broker_id = request.broker_id
    if state.image.cluster.brokers.get(broker_id) is None:
        return []
    return list(state.leader_and_isr_changes(state.index.in_isr(broker_id), remove=broker_id))


def read_up_to_the_end(self: SessionReader, rows: Any) -> Any:
    """Consumers are given what followers are given."""
    if self.replica_id >= 0:
        return _read(self, rows)
    logs = [log for _, _, log, _, _ in rows if log is not None]
    high_watermarks = [log.high_watermark for log in logs]
    for log in logs:
        log.high_watermark = log.log_end_offset
    try:
        return _read(self, rows)
    finally:
        for log, high_watermark in zip(logs, high_watermarks, strict=True):
            log.high_watermark = high_watermark


def lose_producers(log: Log, decoded: object = None) -> None:
    log.producers.clear()


def own_high_watermark(
    self: Partition, records: Any, high_watermark: int, start: int, now_ms: int, *, may_wait: bool = True
) -> None:
    """A follower takes its own end for committed."""
    _append_as_follower(self, records, 1 << 60, start, now_ms, may_wait=may_wait)


def answered_at_once(self: Any, response: Any, on_error: Any) -> Any:
    return response


def read_strictly(log: Log, offset: int, *, min_one: bool = True, **limits: Any) -> Any:
    return _log_read(log, offset, min_one=False, **limits)


def answer_no_session(self: PendingFetch, rows: Any) -> Any:
    """Answer no Fetch of a session: this stands for any code that forgets to complete one."""
    return _fetch_response(self, rows) if not self.reader.session.id else None


def stable_is_at_the_start(log: Log) -> int:
    return log.log_start_offset


def stable_is_committed(log: Log) -> int:
    return log.high_watermark


async def publish_from_the_start(self: Any, introduce_publisher: Callable[[], Awaitable[None]]) -> None:
    """A broker follows the metadata from its beginning, and may lead by metadata from before its crash."""

    async def caught_up() -> None: ...

    await introduce_publisher()
    await _start_broker(self, caught_up)


def append_without_a_pause(context: Any, verdicts: Any, append: Callable[[Any], Any]) -> Any:
    return then(verdicts, append)


def copy_all_but_the_last(current: Log, future: Log, *args: Any, **kwargs: Any) -> Any:
    batches = list(current.batches(future.log_end_offset, current.log_end_offset))
    return _copy_some(current, future, *args, **kwargs) if len(batches) > 1 else 0


def _mutant(text: str, *patches: Patch) -> Mutant:
    return Mutant(text, patches)


REPLICATION = {
    "truncate-to-watermark": _mutant(
        "a follower goes back to its high watermark, not to where the epochs part (KIP-101)",
        (Partition, "become_follower", follow_from_high_watermark),
    ),
    "no-epoch-fence": _mutant(
        "a leader serves readers of any leader epoch (KIP-320)", (Partition, "local_log", local_log_of_any_epoch)
    ),
    "no-divergence": _mutant(
        "a leader does not look whether a follower's log fits its own", (reader, "_divergence", nothing)
    ),
    "old-truncation": Mutant(
        "a truncation of an older leader epoch ends the wait of the present one, and cuts what has been acknowledged since",
        (
            (FollowerSession, "end", end_any_wait),
            (Basis, "holds", property(role_of_the_same_name)),
            (Partition, "truncate_as_follower", truncate_what_is_acknowledged),
        ),
        frozenset({"1", "3", "4", "5", "6", "7"}),
    ),
    "epochs-not-kept": _mutant(
        "a new leader does not write down where its epoch began", (LeaderEpochs, "assign", nothing)
    ),
    "watermark-under-min-isr": _mutant(
        "the high watermark moves with fewer in sync than min.insync.replicas (KIP-966)",
        (Partition, "advance_high_watermark", watermark_below_min_isr),
    ),
    "watermark-without-slowest": _mutant(
        "the high watermark does not wait for one member of the ISR",
        (InSyncReplicas, "next_high_watermark", watermark_without_slowest),
    ),
    "proposal-forgotten": _mutant(
        "metadata of an equal partition epoch forgets the ISR that was proposed since",
        (Partition, "become_leader", forget_proposal),
    ),
    "isr-before-answer": _mutant(
        "a leader takes a proposed ISR for made", (InSyncReplicas, "_propose", isr_before_answer)
    ),
    "join-isr-early": _mutant(
        "a follower joins the ISR before it has reached the high watermark and the leader's epoch",
        (InSyncReplicas, "may_join", join_at_once),
    ),
    "acknowledge-early": _mutant(
        "acks=all is answered after the leader's own append", (Partition, "is_committed", always)
    ),
    "follower-commits-alone": _mutant(
        "a follower takes its own log for committed", (Partition, "append_as_follower", own_high_watermark)
    ),
    "consumers-read-to-the-end": _mutant(
        "consumers are given what lies above the high watermark", (SessionReader, "read", read_up_to_the_end)
    ),
    "old-metadata": _mutant(
        "a broker takes up the roles of before its crash until it has read on",
        (BrokerNode, "start", publish_from_the_start),
    ),
    "sessions-without-turns": _mutant(
        "a partition of a fetch session that has returned data stays in front of the others",
        (FetchSession, "move_to_end", nothing),
    ),
    "first-batch-too-large": _mutant(
        "a first batch that is larger than max_bytes is not returned", (Log, "read", read_strictly)
    ),
    "fetches-not-answered": _mutant(
        "a fetch within a session is never answered", (PendingFetch, "response", answer_no_session)
    ),
    "dedupe-window-of-zero": _mutant(
        "a batch that is sent again is no duplicate", (ProducerState, "duplicate_of", nothing)
    ),
    "producers-forgotten": _mutant(
        "recovery does not rebuild the producers' state", (replay, "rebuild_producers", lose_producers)
    ),
    "directory-not-synced": _mutant(
        "the directory of a new partition is not synced", (Durability, "entry_synced", ALWAYS)
    ),
    "verified-out-of-order": Mutant(
        "a producer's next batch overtakes one that waited for the coordinator's verification",
        ((produce_handler, "in_order", append_without_a_pause),),
        frozenset({"26"}),
    ),
    "flush-does-nothing": _mutant("a flush before the acknowledgement syncs no log", (SegmentFile, "sync", nothing)),
}
CONSUMER_GROUPS = {
    "partition-with-two-members": Mutant(
        "a consumer group's partition is given to a member before another one gave it up",
        ((ConsumerGroup, "is_free", lambda self, topic_id, partition: True),),
        frozenset({"37"}),
    ),
    "target-computed-once": Mutant(
        "a consumer group's target stays when members come and go",
        ((heartbeats, "assign_if_due", lambda shard, now_ms, group, plan, go_on, *, may_change=False: go_on()),),
        frozenset({"38", "42"}),
    ),
}
LOG_DIRECTORIES = {
    "moved-before-the-controller-knows": Mutant(
        "a replica is in its new directory before the controller has registered it there",
        ((LogMoves, "_is_accepted", always),),
        frozenset({"59"}),
    ),
    "moved-without-the-last-records": Mutant(
        "a copy replaces its log before it has the last records",
        ((future_logs, "copy_some", copy_all_but_the_last),),
        frozenset({"1", "3", "4", "5", "45"}),
    ),
}
CONTROLLER = {
    "no-compare-and-set": _mutant(
        "AlterPartition does not look at the epochs", (alter_partition, "_check_epochs", any_epoch_of_partition)
    ),
    "no-broker-epochs": _mutant(
        "AlterPartition takes in a broker that has restarted since (KIP-903)",
        (alter_partition, "_check_eligible", nothing),
    ),
    "unclean-election": _mutant("any living replica may lead", (ControlState, "unclean_election", always)),
    "unclean-stop-unnoticed": _mutant(
        "a broker that crashed stays eligible (KIP-966)", (brokers, "_former_incarnation_records", former_is_clean)
    ),
}
QUORUM = {
    "formats-by-itself": Mutant(
        "a voter whose disk is not mounted formats the empty directory, and votes",
        ((formatting, "may_format", always),),
        frozenset({"18", "19"}),
    ),
    "vote-not-durable": _mutant(
        "a vote is not synced before it is sent", (ElectionStore, "write", write_vote_without_sync)
    ),
    "votes-for-all": _mutant(
        "a voter votes for all who ask in an epoch", (roles.Unattached, "can_grant_vote", vote_for_all)
    ),
    "votes-for-any-log": _mutant(
        "a voter does not compare logs", (roles.Unattached, "can_grant_vote", vote_for_any_log)
    ),
    "commits-alone": _mutant(
        "what the leader of the quorum has is committed", (Leader, "_advance", commit_leaders_log)
    ),
    "metadata-not-flushed": _mutant(
        "the quorum counts what is not on a disk", (log_flusher.LogFlusher, "flush", flush_nothing)
    ),
}
COORDINATORS = {
    "answered-before-commit": _mutant(
        "a coordinator answers before its records are committed",
        (CoordinatorContext, "when_seen_is_committed", answered_at_once),
    ),
    "stable-offset-stands-still": _mutant(
        "the last stable offset does not move", (Log, "last_stable_offset", property(stable_is_at_the_start))
    ),
    "no-stable-offset": _mutant(
        "read_committed is served up to the high watermark", (Log, "last_stable_offset", property(stable_is_committed))
    ),
    "keeps-members-of-older-records": _mutant(
        "a replay takes a group's members from memory where it knows them",
        (GroupMetadataManager, "_replay_group", group_mutants.keep_members_of_older_records),
    ),
    "prepared-left-after-load": _mutant(
        "a coordinator does not finish the transactions that the one before had prepared",
        (TransactionShard, "on_loaded", transaction_mutants.leave_what_was_prepared),
    ),
}
SHARE_GROUPS, STREAMS_GROUPS = (
    {name: Mutant(text, patches, frozenset(by.split())) for name, (text, by, patches) in rows.items()}
    for rows in (SHARE, STREAMS)
)
for family, rows in ((CONTROLLER, controller_mutants.CONTROLLER), (QUORUM, controller_mutants.QUORUM)):
    family.update({name: _mutant(text, *patches) for name, (text, patches) in rows.items()})
MUTANTS: dict[str, Mutant] = {
    name: replace(mutant, by=frozenset(controller_mutants.BY.get(name, "").split()))
    for name, mutant in {**REPLICATION, **CONTROLLER, **QUORUM, **COORDINATORS}.items()
} | {**LOG_DIRECTORIES, **CONSUMER_GROUPS, **SHARE_GROUPS, **STREAMS_GROUPS}


def applied(name: str | None) -> AbstractContextManager[None]:
    """Puts the mutant in for the time of the block."""
    return nullcontext() if name is None else MUTANTS[name].applied()
