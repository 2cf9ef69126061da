"""The active controller: decide, append, replay, wait for the commit, reply. One decision at a time, in one order.

    standby    the committed image only, from the loader; every request is answered NOT_CONTROLLER
    elected    still a standby to everybody else, for the turns of the loop that the index of a large image takes
    active     `state.image` runs ahead of it by what was appended and is not committed yet; decisions are made from it

From a decision to the end of its replay nothing awaits, so there are no locks and nothing to undo. What was decided is
answered when it is committed; what was only read is answered once the newest record it could have seen is. When the
leadership is lost, the image with uncommitted records is dropped and all pending responses are NOT_CONTROLLER: the next
leader decides whether their records survive.

The decisions are in decisions/, the requests in handlers/, the scheduled tasks in periodic.py.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from ottla.controller.decisions.control_state import ControlSettings, ControlState
from ottla.controller.decisions.elections import raised_epochs
from ottla.controller.decisions.features import bootstrap_records, completed_bootstrap
from ottla.controller.decisions.heartbeats import Heartbeats
from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.decisions.outcome import USER_RECORDS_MAX, Outcome
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import AbortTransactionRecord, MetadataRecord
from ottla.protocol.work import Work
from ottla.server.clock import Clock, begin_in_turns
from ottla.server.metrics import Histogram
from ottla.server.network.context import Reply

#: The histogram counts units of 1024 ns.
UNIT_BITS = 10
MS_PER_UNIT = (1 << UNIT_BITS) / 1_000_000


class Operations:
    """A context manager that counts and times the operations of the active controller, for its metrics.

    An operation is one decision with its append and its replay; a decision that takes several turns is one in each of them.
    Operations do not overlap: nothing awaits in one.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ns = 0
        self.started = 0
        self.times = Histogram()

    def __enter__(self) -> None:
        self.started += 1
        self._began_ns = self._clock.mono_ns()

    def __exit__(self, *_: object) -> None:
        self.times.add(self._clock.mono_ns() - self._began_ns >> UNIT_BITS)


log = logging.getLogger(__name__)

T = TypeVar("T")
Decide = Callable[[ControlState], Outcome[T]]


class MetadataLog(Protocol):
    """The interface of the controller to the quorum."""

    @property
    def log_end_offset(self) -> int:
        """The offset that the next appended record gets."""

    def append_atomic(self, records: list[bytes], *, epoch: int) -> int:
        """Append one batch as leader of the epoch and give its last offset; an exception means that nothing was."""

    def resign(self, epoch: int) -> None: ...


class _UncommittedReply(NamedTuple):
    """A reply that waits until the metadata log is committed up to the offset of its last record."""

    offset: int
    reply: Reply[Any]
    response: Any


class Controller:
    def __init__(
        self,
        node_id: int,
        clock: Clock,
        rng: Random,
        log_: MetadataLog,
        loader: MetadataLoader,
        settings: ControlSettings,
    ) -> None:
        self.node_id = node_id
        self.clock = clock
        self.rng = rng
        self.settings = settings
        self.loader = loader
        self.heartbeats = Heartbeats(settings.broker_session_timeout_ms)
        self.leader_id = -1
        self.epoch = -1
        self.is_active = False
        # Called when this controller becomes active and when it no longer is: they start and stop the scheduled tasks.
        self.on_activated: Callable[[], None] = lambda: None
        self.on_deactivated: Callable[[], None] = lambda: None
        self.on_decided: Callable[[], None] = lambda: None
        #: Called with the names of the configs that were set or removed.
        self.on_configs_changed: Callable[[Container[str]], None] = lambda names: None
        self.last_append_ms = 0
        self.operations = Operations(clock)
        #: Leaders of the quorum that this node has seen since its start.
        self.leaders = 0
        self._log = log_
        self._state: ControlState | None = None
        self._waiting: deque[_UncommittedReply] = deque()
        self._last_offset = -1  # the offset of the newest record that was appended in this term
        self._bootstrap: list[MetadataRecord] | None = None
        #: The least leader epochs of partitions, by topic and index, in a cluster that was set back.
        self.epoch_floors: Mapping[tuple[str, int], int] = {}
        self._last_leader_id = -1
        #: The work that builds the index of this controller, which is elected and not active yet.
        self._indexing: Work[ClusterIndex] | None = None

    # The quorum's side
    def leader_changed(self, leader_id: int, epoch: int) -> None:
        """Handle a leader change. This node becomes leader only after everything before its epoch is committed and loaded."""
        if self.is_active:
            self._deactivate()
        self.leader_id, self.epoch = leader_id, epoch
        self._stop_indexing()
        former_id = self._last_leader_id
        if leader_id >= 0:
            self._last_leader_id = leader_id
            self.leaders += 1
        if leader_id == self.node_id:
            indexing = self._indexing = ClusterIndex.building(self.loader.image)
            begin_in_turns(self.clock, self._index(indexing, self.loader.image, former_id))

    def committed(self) -> None:
        """The loader has published the committed records: answer the requests that waited for them."""
        offset = self.loader.last_offset
        while self._waiting and self._waiting[0].offset <= offset:
            done = self._waiting.popleft()
            done.reply.complete(done.response)

    # The requests' side
    @property
    def state(self) -> ControlState:
        """Return the state. Raises KafkaError(NOT_CONTROLLER) on any node but the active controller."""
        if self._state is None:
            raise self.not_controller()
        return self._state

    @property
    def next_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def last_applied_offset(self) -> int:
        """The offset of the newest record in `image`."""
        return self._last_offset if self.is_active else self.loader.last_offset

    @property
    def image(self) -> MetadataImage:
        """The newest image; on the active controller it has uncommitted records, too."""
        return self.loader.image if self._state is None else self._state.image

    def not_controller(self) -> KafkaError:
        known = f"the active controller appears to be node {self.leader_id}" if self.leader_id >= 0 else (
            "no controller appears to be active"
        )  # fmt: skip
        return KafkaError(ErrorCode.NOT_CONTROLLER, f"This node is not the active controller; {known}.")

    def write(self, decide: Decide[T]) -> Reply[T]:
        """Decide, append and replay now; the answer comes with the commit. Exceptions of `decide` are raised to the caller."""
        reply: Reply[T] = Reply()
        self._answer(reply, self._decided(self.state, decide))
        return reply

    def write_in_turns(self, decide: Decide[T | None]) -> Reply[T]:
        """Write a decision as `write` does, if it may need more time than one turn of the loop.

        `decide` returns a response of None as long as there is more to decide, and is called again in the next turn: the
        records of a turn are appended and replayed in it, other decisions come in between, and one answer is for all turns. An
        exception of the first turn is raised to the caller; a later one becomes the answer.
        """
        reply: Reply[T] = Reply()
        begin_in_turns(
            self.clock, self._deciding(self.state, decide), partial(self._answer, reply), partial(_answer_error, reply)
        )
        return reply

    def _deciding(self, state: ControlState, decide: Decide[T | None]) -> Work[T]:
        while (response := self._decided(state, decide)) is None:
            yield None
            if self._state is not state:
                raise self.not_controller()  # the term is over, and its decisions may be lost
        return response

    def _decided(self, state: ControlState, decide: Decide[T]) -> T:
        """Decide, append and replay; return the response."""
        with self.operations:
            outcome = decide(state)
            if outcome.records:
                self._append(state, outcome.records)
                self.on_decided()
            return outcome.response

    def _answer(self, reply: Reply[T], response: T) -> None:
        if self._last_offset > self.loader.last_offset:
            self._waiting.append(_UncommittedReply(self._last_offset, reply, response))
        else:
            reply.complete(response)

    def stop(self) -> None:
        self._stop_indexing()
        if self.is_active:
            self._deactivate()

    def _append(self, state: ControlState, records: list[MetadataRecord]) -> None:
        """Append the decision of a client's request as one batch; fencing a broker with many partitions takes several."""
        for start in range(0, len(records), USER_RECORDS_MAX):
            try:
                is_one = len(records) <= USER_RECORDS_MAX  # a copy would be without the values that are encoded already
                self._append_batch(state, records if is_one else records[start : start + USER_RECORDS_MAX])
            except KafkaError:
                if start:
                    self._log.resign(self.epoch)  # a full disk has rejected the rest: the next term decides about it
                raise

    def _append_batch(self, state: ControlState, records: list[MetadataRecord]) -> None:
        first = self._log.log_end_offset
        delta = MetadataDelta(state.image)
        delta.replay_all(records)
        image = delta.apply(first + len(records) - 1, self.epoch)
        values = encode_metadata(records, image.features.metadata_version)
        try:
            last = self._log.append_atomic(values, epoch=self.epoch)
        except KafkaError:
            # RECORD_LIST_TOO_LARGE, or KAFKA_STORAGE_ERROR of a full disk: this node is the active controller all the same, and nothing
            # has been changed.
            raise
        except Exception:
            # This node is no longer the leader, or its disk failed: the quorum notifies it of both. Nothing has been changed.
            log.warning("Could not append to the metadata log", exc_info=True)
            raise self.not_controller() from None
        assert last == first + len(records) - 1, f"{len(records)} records from {first} on end at {last}"
        if self._state is not state:
            # The append itself found that this epoch is over: its majority had been silent for too long, as after a pause
            # of the process. As for all who wait, whether the records survive is for the next leader to say.
            raise self.not_controller()
        self.loader.appended.update(((self.epoch, first + index), record) for index, record in enumerate(records))
        self._last_offset = last
        self.last_append_ms = self.clock.mono_ms()
        try:
            state.image = image
            state.index.update(delta)
            self._follow_brokers(delta)
        except Exception:
            # State and log are apart now. The next term, here or elsewhere, makes its state from the log.
            log.exception("The active controller could not replay what it had appended, and resigns")
            self._log.resign(self.epoch)
            raise self.not_controller() from None
        if delta.configs is not None:
            changes = delta.configs.changed_resources.values()
            self.on_configs_changed({name for changed in changes for name in changed})

    def _follow_brokers(self, delta: MetadataDelta) -> None:
        """Begin and end the sessions of brokers with their registrations."""
        if delta.cluster is None:
            return
        now_ms = self.clock.mono_ms()
        for broker_id, broker in delta.cluster.changed_brokers.items():
            before = delta.cluster.image.brokers.get(broker_id)
            if broker is None or (before is not None and before.epoch != broker.epoch):
                self.heartbeats.remove(broker_id)
            if broker is not None:
                self.heartbeats.register(broker_id, broker.fenced, now_ms)

    def _stop_indexing(self) -> None:
        if self._indexing is not None:
            self._indexing.close()
            self._indexing = None

    def _index(self, indexing: Work[ClusterIndex], of: MetadataImage, former_id: int) -> Work[None]:
        """Build the index of `of`. Until it is complete, only the quorum's own records are appended."""
        index = yield from indexing
        if indexing is not self._indexing:
            return  # the leadership was lost meanwhile
        self._indexing = None
        try:
            assert self.loader.image.topics is of.topics, "partitions changed between election and activation"
            self._activate(index, former_id)
        except Exception:
            log.exception("Node %d was elected, and cannot be the active controller: it resigns", self.node_id)
            self._log.resign(self.epoch)

    def _activate(self, index: ClusterIndex, former_id: int) -> None:
        image = self.loader.image
        assert self.loader.last_epoch == self.epoch, (
            f"leader of epoch {self.epoch} before a record of it was committed: the image is of {self.loader.last_epoch}"
        )
        self.is_active = True
        state = self._state = ControlState(image, index, self.settings)
        self.heartbeats = Heartbeats(self.settings.broker_session_timeout_ms)
        now_ms = self.clock.mono_ms()
        for broker_id, broker in sorted(image.cluster.brokers.items()):
            self.heartbeats.assume(broker_id, broker.fenced, now_ms)
        # A combined node that lost the quorum has most likely died, and its broker with it; if not, that broker sends a
        # heartbeat as soon as it is notified of the new leader.
        self.heartbeats.connection_lost(former_id, now_ms, self.settings.lost_connection_grace_ms)
        self._last_offset = self.loader.last_offset
        self.loader.appended.clear()
        log.info("Node %d is the active controller of epoch %d", self.node_id, self.epoch)
        records: list[MetadataRecord] = []
        if self.loader.in_transaction:
            records.append(AbortTransactionRecord(reason="Controller failover"))
        if image.features.metadata_version == 0:
            records += self._bootstrap or bootstrap_records(self.settings.min_insync_replicas, self.settings.advertised)
        records += raised_epochs(image.topics, self.epoch_floors)
        try:
            if records:
                self._append(state, records)
        except KafkaError:
            # The leadership is lost already, and leader_changed follows; or there is no room for a controller's first records.
            self._log.resign(self.epoch)
            return
        self.on_activated()

    def set_bootstrap(self, records: Iterable[MetadataRecord]) -> None:
        """Write the records that a new cluster begins with, if its directory was formatted with other values than the defaults."""
        self._bootstrap = completed_bootstrap(list(records), self.settings.min_insync_replicas)

    def _deactivate(self) -> None:
        log.info("Node %d is no longer the active controller (epoch %d)", self.node_id, self.epoch)
        self.is_active = False
        if self._state is not None:
            emptying = self._state.index.emptying()
            self.clock.call_later(0, lambda: begin_in_turns(self.clock, emptying))
        self._state = None
        self.loader.appended.clear()
        waiting, self._waiting = self._waiting, deque()
        self.on_deactivated()
        error = self.not_controller()
        for lost in waiting:
            lost.reply.complete(error)


def _answer_error(reply: Reply[T], error: Exception) -> None:
    if not isinstance(error, KafkaError):
        log.error("A decision in turns failed", exc_info=error)
        error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    reply.complete(error)
