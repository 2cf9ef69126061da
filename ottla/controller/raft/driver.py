"""RaftNode: one replica of the metadata log, as used by the rest of the node. It executes the core's effects.

    node = RaftNode(world, config, directory, listener)
    await node.start()                      # a quorum of one leads when this returns
    last_offset = node.append([value, ...]) # on the leader; NotLeader anywhere else
    ...listener.handle_commit(batches)      # on every replica, once the records are committed

It steps the core and executes its effects in order. Three operations take time: flushes of the log (metadata_log.py), requests
to other replicas (wire/requests_out.py), and the delivery of committed batches to the listener (delivery.py).

A failed disk stops the replica for good (`failure`, `on_failure`): it sends no more responses, and the others elect a new leader.
A full one does not: see shortage.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ottla.controller.raft.agreement import QuorumDisagreement, check_changed_voters
from ottla.controller.raft.batches import batch_bytes, split
from ottla.controller.raft.core import NotLeader, RaftCore
from ottla.controller.raft.delivery import Delivery, RaftListener
from ottla.controller.raft.effects import Effects, PeerReply, PeerRequest
from ottla.controller.raft.log_flusher import LogFlusher
from ottla.controller.raft.log_state import OffsetAndEpoch
from ottla.controller.raft.messages import ControlRecords, Message, Received, RequestBody, SnapshotReceived
from ottla.controller.raft.metadata_log import MetadataLog, opened
from ottla.controller.raft.quorum_state import QuorumState
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.reconfiguration import voters_with_directories
from ottla.controller.raft.roles import Follower, Resigned
from ottla.controller.raft.shortage import RETRY_MS, LogWriter
from ottla.controller.raft.snapshots import SnapshotWriter, completed
from ottla.controller.raft.timers import Notes, Reminder, TickTimer
from ottla.controller.raft.wire.requests_in import PendingRaftResponse, reply_to_wire
from ottla.controller.raft.wire.requests_out import Channels
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Work
from ottla.server.clock import pause
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import World
from ottla.storage.errors import DiskFull, StorageFailure

logger = logging.getLogger(__name__)

#: The time for which a stop waits until the voters have received a resignation.
RESIGN_WAIT_MS = 1000


class RaftNode:
    def __init__(
        self,
        world: World,
        config: RaftConfig,
        directory: str,
        listener: RaftListener,
        *,
        security: PeerSecurity = PLAINTEXT,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        """Take the metadata log `directory`, the parent of `__cluster_metadata-0`."""
        self.config = config
        self.failure: BaseException | None = None
        self.clock = world.clock
        self._world = world
        self._directory = directory
        self._listener = listener
        self._on_failure = on_failure
        self._channels = Channels(world, config.node_id, security)
        self._storing = False
        self._stopped = True  # until it is opened
        self._notes = Notes(config.node_id)
        self._log: MetadataLog
        #: The core must not be stepped from outside: that would break the order of effects.
        self.core: RaftCore
        #: The state of the quorum, which others may only read.
        self.state: QuorumState
        self._delivery: Delivery
        self._flusher: LogFlusher
        self._reminder: Reminder
        self._writer: LogWriter
        self._tick_timer = TickTimer(world.clock, self._tick)

    @property
    def is_leader(self) -> bool:
        return self.state.is_leader

    @property
    def is_in_touch(self) -> bool:
        """Return True if the quorum is reachable: this replica leads, or has a recent response of the leader."""
        role = self.state.role
        return self.is_leader or (isinstance(role, Follower) and self.clock.mono_ms() < role.fetch_deadline_ms)

    @property
    def voter_ids(self) -> frozenset[int]:
        return frozenset(self.state.voters.last.ids)

    @property
    def log_end_offset(self) -> int:
        return self.state.log.end_offset

    @property
    def shortage(self) -> str | None:
        """Return why this replica cannot write, in words for operators: its disk is full, or the process has no descriptor."""
        return self._writer.shortage

    @property
    def _takes_steps(self) -> bool:
        return self.failure is None and not self._stopped and not self._writer.is_standing

    async def start(self) -> None:
        """Open the files and join the quorum. A quorum of one leads, and its listener is notified, when this returns."""
        await self.open()
        await self.begin()

    async def open(self) -> None:
        """Read the files, on a worker. Raises StorageFailure, or CorruptFile if continuing could lose committed records."""
        world = self._world
        self._log = await world.workers.run(opened, world.files, self._directory, self.config, world.clock.wall_ms())
        now_ms = world.clock.mono_ms()
        election = self._log.election.read()
        check_changed_voters(self._log.election.voter_ids, self._log.voters)
        self.core = RaftCore(self.config, self._log.state, self._log.voters, election, world.rng, now_ms)
        self.state = self.core.state
        self._reminder = Reminder(world.clock, self.state)
        writer = self._writer = LogWriter(
            world.clock, self.config.node_id, self._log, self._written, self._let_another_lead, self._fail
        )
        self._flusher = LogFlusher(world, self.config, self.state, self._log, self._step, self._fail, writer.met)
        self._delivery = Delivery(self.state, self._log, self._listener, world.clock, self._fail)
        self._stopped = False

    async def begin(self) -> None:
        self._reminder.begin()
        self._tick()
        if self.state.is_only_voter and self._flusher.is_wanted:
            await self._flusher.flush()
            while not (self._delivery.is_idle or self._delivery.is_over):
                await pause(self.clock, 0)

    def between_deliveries(self, work: Work[None]) -> None:
        """Run work on the listener's state between two deliveries."""
        self._delivery.insert(work)

    async def stop(self) -> None:
        """Resign, if this replica leads, and close the files."""
        if self._stopped:
            return
        if self._takes_steps and not self.state.is_only_voter:
            await self._resign()
        self._stopped = self._delivery.is_over = True
        self._tick_timer.cancel()
        self._channels.close()
        self._reminder.stop()
        self._writer.stop()
        self._flusher.stop()
        while self._flusher.is_running or self._storing:
            await pause(self.clock, 1)
        self._log.close()

    async def _resign(self) -> None:
        clock = self.clock
        self._turn(self.core.resign)
        deadline_ms = clock.mono_ms() + RESIGN_WAIT_MS
        while isinstance(self.state.role, Resigned) and self.state.role.unacknowledged:
            if not self.state.peers.any_waiting or clock.mono_ms() >= deadline_ms:
                return
            await pause(clock, 5)

    def append(self, records: list[bytes], *, epoch: int | None = None) -> int:
        """Append record values as leader; return the offset of the last. They are committed once they are delivered to the listener.

        Raises:
            NotLeader: this replica does not lead, or not in `epoch`. Nothing was appended.
            KafkaError: KAFKA_STORAGE_ERROR, its disk has no room. Nothing was appended.
        """
        return self._append([(len(values), values) for values in split(records, self._batch_bytes_max)], epoch)

    def append_atomic(self, records: list[bytes], *, epoch: int | None = None) -> int:
        """Append records as `append` does, but in one batch: all are committed at once, or none.

        Raises:
            KafkaError: RECORD_LIST_TOO_LARGE, KAFKA_STORAGE_ERROR; nothing was appended.
        """
        if batch_bytes(records) > self._batch_bytes_max:
            raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(records)} records do not fit into one batch")
        return self._append([(len(records), records)], epoch)

    @property
    def _batch_bytes_max(self) -> int:
        """The log takes any batch; as in Kafka a leader makes none that is larger than a segment."""
        return min(self.config.batch_bytes_max, self.config.segment_bytes)

    def _append(self, batches: Sequence[tuple[int, list[bytes] | ControlRecords]], epoch: int | None) -> int:
        assert batches, "nothing to append"
        if self.failure is not None or self._stopped or epoch not in (None, self.state.epoch):
            raise NotLeader(self.state.leader_id, self.state.epoch)
        try:
            if self.state.is_leader:
                self._writer.make_room(batches)
            last_offset, effects = self.core.append(batches, self.clock.mono_ms())
        except (NotLeader, KafkaError):
            raise
        except Exception as mistake:
            self._fail(mistake)
            raise NotLeader(-1, self.state.epoch) from mistake
        self._apply(effects)
        if self.failure is not None:
            raise NotLeader(-1, self.state.epoch)
        return last_offset

    def _let_another_lead(self) -> None:
        """Resign, because this replica's disk is full: another voter's may have room."""
        if self.state.is_leader and not self.state.is_only_voter and self._takes_steps:
            self._turn(self.core.resign)

    def raise_kraft_version(self, level: int, *, dry_run: bool) -> None:
        """Change, as leader, from the configured voters to voters in the log: at once, so that it is committed before later appends.

        Raises:
            KafkaError: this replica does not lead or has no room, or a voter's directory is not known. Nothing was appended.
        """
        if not self.state.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        voters = voters_with_directories(self.state)
        if not dry_run:
            # Both records are in one batch, so that every replica has both or none.
            self._append([(2, ControlRecords(kraft_version=level, voters=voters))], self.state.epoch)

    def resign(self, epoch: int) -> None:
        """Resign the leadership of this epoch; without effect if it has ended already."""
        if epoch != self.state.epoch or not self.state.is_leader:
            return
        if self._takes_steps:
            self._turn(self.core.resign)
        elif self._writer.is_standing:
            self.clock.call_later(RETRY_MS, lambda: self.resign(epoch))

    def create_snapshot(self, snapshot: OffsetAndEpoch, last_contained_log_timestamp: int) -> SnapshotWriter | None:
        """Begin a snapshot of the state at a committed offset, the end of a batch; return None if it exists already.

        Append the records, call `freeze()` (it fsyncs: on a worker if the snapshot is large), then call `snapshot_created`.
        """
        state = self.state
        if not 0 < snapshot.offset <= state.high_watermark or state.log.epoch_at(snapshot.offset) != snapshot.epoch:
            raise ValueError(
                f"no snapshot at {snapshot}: the log is {state.log.start_offset} to {state.high_watermark}"
            )
        latest = state.log.latest_snapshot
        if latest is not None and latest >= snapshot:
            return None
        now_ms = self.clock.wall_ms()
        return self._log.new_snapshot(snapshot, last_contained_log_timestamp, now_ms)

    def snapshot_created(self, snapshot: OffsetAndEpoch) -> None:
        """Register a frozen snapshot. Retention deletes older ones and the log before them."""
        if self._stopped or self.failure is not None:
            return  # it was frozen while this replica stopped; the next start loads it
        if snapshot.offset < self.state.log.start_offset:
            # While it was written, the log was reset to a newer snapshot from the leader.
            self._log.snapshots.remove(snapshot)
            return
        self.core.snapshot_created(snapshot)
        if not self._on_disk(lambda: self._log.snapshot_created(self.clock.wall_ms())):
            return
        self._flusher.want()  # the flush advances the recovery point
        self.apply_retention()

    def apply_retention(self) -> None:
        wall_ms = self.clock.wall_ms()
        oldest = self._log.oldest_to_keep(wall_ms)
        if oldest is None:
            return
        before = list(self.state.log.snapshots)
        self.core.start_log_at(oldest)
        removed = [snapshot for snapshot in before if snapshot not in self.state.log.snapshots]
        self._on_disk(lambda: self._log.start_at(oldest, removed, wall_ms))

    def _on_disk(self, write: Callable[[], None]) -> bool:
        """Return False if the disk has failed. If it is full, the next snapshot makes up for it."""
        try:
            write()
        except DiskFull as shortage:
            self._writer.met(shortage)
        except StorageFailure as failure:
            self._fail(failure)
        return self.failure is None

    # Requests of other replicas

    def handle(self, body: RequestBody, pending: PendingRaftResponse) -> Any:
        """Respond at once, or later through the returned Reply."""
        if self.failure is not None or self._stopped:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the replica has stopped")
        if self._writer.is_standing:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, self.shortage)
        self._step(Received(body, pending))
        return pending.reply

    def _step(self, message: Message) -> None:
        if self._takes_steps:
            self._turn(lambda now_ms: self.core.step(message, now_ms))

    def _turn(self, transition: Callable[[int], Effects]) -> None:
        """Run a step of the core. An exception leaves the core, or the disk, partly changed, so the replica stops."""
        try:
            effects = transition(self.clock.mono_ms())
        except Exception as mistake:
            self._fail(mistake)
            raise
        self._apply(effects)

    def _tick(self) -> None:
        if self._takes_steps:
            self._turn(self.core.tick)

    def _apply(self, effects: Effects) -> None:
        """Execute the fields in the order in which Effects declares them."""
        try:
            is_written = self._writer.write(effects)
        except Exception as failure:
            self._fail(failure)
            return
        if is_written:
            self._execute(effects)

    def _written(self, effects: Effects) -> None:
        """A step that had to wait for room is written."""
        self._execute(effects)
        if self._takes_steps:
            self._flusher.want()  # a flush that ended meanwhile was not counted

    def _execute(self, effects: Effects) -> None:
        if effects.flush:
            self._flusher.want()
        for request in effects.requests:
            self._world.spawn(self._send(request), f"raft {type(request.body).__name__} to {request.destination_id}")
        for reply in effects.replies:
            self._reply(reply)
        for note in effects.notes:
            self._notes.say(note)
        if effects.disagreement is not None:
            self._fail(QuorumDisagreement(effects.disagreement))
            return
        if effects.leader_change is not None:
            self._delivery.leader_to_notify = effects.leader_change
        if not self._stopped:
            self._tick_timer.set(self.state.deadline_ms)
        self._delivery.run()
        if effects.snapshot_chunk is not None and effects.snapshot_chunk.is_last:
            self._storing = True
            self._world.spawn(self._finish_download(effects.snapshot_chunk.snapshot), "raft snapshot")

    def _fail(self, failure: BaseException) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        self._flusher.give_up()
        self._delivery.is_over = True
        is_expected = isinstance(failure, QuorumDisagreement)
        logger.error("[raft %d] stops: %s", self.config.node_id, failure, exc_info=None if is_expected else failure)
        self._tick_timer.cancel()
        self._writer.stop()
        self._channels.close()
        if self._on_failure is not None:
            self._on_failure(failure)

    async def _send(self, request: PeerRequest) -> None:
        self._step(await self._channels.ask(request))

    def _reply(self, reply: PeerReply) -> None:
        pending = reply.reply_to
        assert isinstance(pending, PendingRaftResponse)
        body, records = self._log.with_contents(reply.body)
        pending.reply.complete(reply_to_wire(body, pending, records))

    async def _finish_download(self, snapshot: OffsetAndEpoch) -> None:
        """Make the whole downloaded snapshot durable before the core may use it."""
        try:
            control = await completed(self._world, self._log.snapshots, snapshot)
            while self._writer.is_standing and not self._stopped:
                await pause(self.clock, RETRY_MS)
        except Exception as failure:
            self._fail(failure)
            return
        finally:
            self._storing = False
        if control is not None:
            self._step(SnapshotReceived(snapshot, control.voters, control.kraft_version))
        elif self._takes_steps:
            self._turn(self.core.abandon_download)
