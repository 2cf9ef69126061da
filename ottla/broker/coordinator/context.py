"""One partition of an internal topic at the coordinator: its shard, its timers, and the responses that wait for the high watermark.

From a decision to the end of its replay nothing awaits, so there are no locks and no undo.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from ottla.broker.coordinator.outcome import OnError, Outcome, Producer, Response, Unasked, client_error
from ottla.broker.coordinator.partition_log import PartitionLog, TopicPartition
from ottla.broker.coordinator.shard import Loader, LoadTimes, RecordCodec, Shard
from ottla.broker.coordinator.stories import CoordinatorStories
from ottla.broker.coordinator.timers import Timers
from ottla.broker.coordinator.turns import ShardTurns
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import EndTxnMarker, end_txn_batch
from ottla.server.clock import Clock, TimerHandle
from ottla.server.network.context import Answer, Reply
from ottla.server.story import Cause, because, by_timer
from ottla.server.tasks import isolated

log = logging.getLogger(__name__)

#: A reply takes 30 us, most of it the write to its socket: a group of 500 that completes a rebalance held the loop for 17 ms.
REPLIES_A_TURN = 64

ShardT = TypeVar("ShardT", bound=Shard)
T = TypeVar("T")


#: The cause of a coordinator's decisions right after it has loaded a partition.
LOADED = because("loaded")


class CoordinatorState(Enum):
    LOADING = 0
    ACTIVE = 1
    FAILED = 2  # the log could not be read, or the state differs from it: NOT_COORDINATOR until it is loaded again
    CLOSED = 3


TRANSITIONS: dict[CoordinatorState, dict[CoordinatorState, str]] = {
    CoordinatorState.LOADING: {
        CoordinatorState.ACTIVE: "the log is replayed up to its end",
        CoordinatorState.FAILED: "the log cannot be read",
        CoordinatorState.CLOSED: "another broker leads the partition, or it is deleted",
    },
    CoordinatorState.ACTIVE: {
        CoordinatorState.FAILED: "a record was appended that cannot be replayed: memory and log differ",
        CoordinatorState.CLOSED: "another broker leads the partition, or it is deleted",
    },
    CoordinatorState.FAILED: {
        CoordinatorState.CLOSED: "loaded again (as a new context), led elsewhere, or deleted",
    },
    CoordinatorState.CLOSED: {},
}


@dataclass(frozen=True, slots=True, eq=False)
class InternalTopic(Generic[ShardT]):
    """The fields that all partitions of the internal topic share."""

    name: str
    partition_log: PartitionLog
    clock: Clock
    codec: RecordCodec
    shard_factory: Callable[[Timers], ShardT]
    commit_timeout_ms: int
    turns: ShardTurns
    load_times: LoadTimes
    stories: CoordinatorStories


class CoordinatorContext(Generic[ShardT]):
    """One partition: its shard, its timers, and the responses that wait for the high watermark."""

    def __init__(
        self,
        topic: InternalTopic[ShardT],
        partition: int,
        leader_epoch: int,
        on_replay_failed: Callable[[CoordinatorContext[ShardT]], None],
    ) -> None:
        self.topic = topic
        self.tp: TopicPartition = (topic.name, partition)
        self.leader_epoch = leader_epoch
        self.state = CoordinatorState.LOADING
        self.timers = Timers(topic.clock.mono_ms, self._wake_up_changed)
        self.shard = topic.shard_factory(self.timers)
        self.last_written = -1
        self._began_ms = topic.clock.mono_ms()
        # (offset, deadline, reply and response); neither offsets nor deadlines ever fall.
        self._waiting: deque[tuple[int, int, Response]] = deque()
        self._timeout: TimerHandle | None = None
        self._wake_up: TimerHandle | None = None
        self._wake_up_ms = 0
        self._runs_timers = False
        self._busy = False
        self._was_active = False
        self._loader: Loader | None = None
        self._on_replay_failed = on_replay_failed

    def load(self) -> None:
        """Replay the log when it is first in the queue."""
        log.info("Scheduling loading of metadata from %s-%d with epoch %d", *self.tp, self.leader_epoch)
        try:
            self._loader = loader = Loader(self.topic.partition_log, self.tp, self.topic.codec, self.shard)
        except KafkaError as error:
            self._loaded(-1, error)
            return
        self.topic.turns.loads.add(loader.steps(), lambda error: self._loaded(loader.offset - 1, error))

    def _loaded(self, last_offset: int, error: Exception | None) -> None:
        if self.state is not CoordinatorState.LOADING:
            return
        if error is not None:
            log.error("Failed to load metadata from %s-%d with epoch %d", *self.tp, self.leader_epoch, exc_info=error)
            self._become(CoordinatorState.FAILED)
            return
        self.last_written = last_offset
        self._was_active = True
        duration_ms = self.topic.clock.mono_ms() - self._began_ms
        self.topic.load_times.add(duration_ms)
        log.info(
            "Finished loading of metadata from %s-%d with epoch %d in %d ms; loaded up to offset %d",
            *self.tp,
            self.leader_epoch,
            duration_ms,
            last_offset,
        )
        self._become(CoordinatorState.ACTIVE)
        self.perform_unasked(LOADED, lambda: self.shard.on_loaded(self.topic.clock.wall_ms()))

    def close(self) -> None:
        """Fail everything that waits; NOT_COORDINATOR makes clients look for the new one."""
        log.info("Unloading metadata for %s-%d with epoch %d", *self.tp, self.leader_epoch)
        self._become(CoordinatorState.CLOSED)
        if self._loader is not None:
            self._loader.is_stopped = True
        self.timers.clear()
        for handle in (self._wake_up, self._timeout):
            if handle is not None:
                handle.cancel()
        waiting, self._waiting = self._waiting, deque()
        for _, _, (reply, _) in waiting:
            isolated(reply.complete, KafkaError(ErrorCode.NOT_COORDINATOR))
        if self._was_active:
            for reply, response in self.shard.on_unloaded().replies:
                isolated(reply.complete, response)

    def _become(self, state: CoordinatorState) -> None:
        assert state in TRANSITIONS[self.state], f"{self.tp} goes from {self.state} to {state}"
        self.state = state

    def perform(self, outcome: Outcome[T]) -> T | None:
        """Append, replay, continue with `then`, and send `replies` when they are committed; return the response of the request."""
        assert not self._busy, "a decision was made inside another one's append or replay"
        self._busy = True
        response: T | None = None
        replies: list[Response] = []
        committed: list[Callable[[], None]] = []
        error: KafkaError | None = None
        try:
            following: Outcome[T] | None = outcome
            while following is not None:
                outcome, following = following, None
                if outcome.records:
                    try:
                        self._append(outcome)
                    except KafkaError as rejection:
                        self.topic.stories.rejected(outcome.records, rejection)
                        error = client_error(rejection)
                        if outcome.rejected is not None:
                            following, error = outcome.rejected(error), None
                        continue
                if outcome.response is not None:
                    response = outcome.response
                if outcome.replies:
                    replies.extend(outcome.replies)
                if outcome.committed is not None:
                    committed.append(outcome.committed)
                if outcome.then is not None:
                    following = outcome.then()
        finally:
            self._busy = False
        self._complete_all(replies)
        for callback in committed:
            self._when_committed(callback)
        if error is not None:
            raise error
        return response

    def perform_unasked(self, cause: Cause, decide: Callable[[], Unasked]) -> None:
        """Perform a decision whose `cause` is a timer or an event. An error ends only this decision: no request waits for it.

        The other sessions and rebalances of the shard depend on their timers.
        """
        self.topic.stories.cause = cause
        try:
            self.perform(decide())
        except KafkaError as error:
            log.warning("%s-%d could not write: %s", *self.tp, error)
        except Exception:
            # Any error, because a timer has no caller: raised into the event loop it would also end the sweep that runs the timers.
            log.exception("%s-%d: a timer or an event failed", *self.tp)
            self.topic.stories.print_of_timer(cause[0])

    def when_seen_is_committed(self, response: T, on_error: OnError[T]) -> Answer[T]:
        """Return the response itself if all records that it could have seen are committed, else a reply."""
        if self._is_committed():
            return response
        reply = Reply(on_error)
        self._wait((reply, response))
        return reply

    def _when_committed(self, callback: Callable[[], None]) -> None:
        if self._is_committed():
            isolated(callback)
            return
        with suppress(KafkaError):  # leadership is lost, so that the records are never committed
            self.topic.partition_log.when_committed(self.tp, self.last_written, lambda: self._when_idle(callback))

    def _when_idle(self, callback: Callable[[], None]) -> None:
        """Call back now, or after the decision under way.

        An append may raise the high watermark by itself, and calls that wait for it would then decide inside of the append,
        before its records are replayed. Kafka has an ActionQueue for this.
        """
        if self.state is not CoordinatorState.ACTIVE:
            return
        if self._busy:
            self.topic.clock.call_later(0, lambda: self._when_idle(callback))
        else:
            isolated(callback)

    def complete(self, reply: Reply[T], response: T) -> None:
        """Complete the reply when all that its response could have seen is committed."""
        if self._is_committed():
            isolated(reply.complete, response)
        else:
            self._wait((reply, response))

    def _complete_all(self, replies: list[Response]) -> None:
        """Complete the waiting operations.

        One turn completes REPLIES_A_TURN of them. The others wait, like responses that wait for the log.
        """
        for reply, response in replies[:REPLIES_A_TURN]:
            self.complete(reply, response)
        if later := replies[REPLIES_A_TURN:]:
            deadline_ms = self.topic.clock.mono_ms() + self.topic.commit_timeout_ms
            self._waiting.extend((self.last_written, deadline_ms, each) for each in later)
            self._arm_timeout()
            self._commit_later()

    def _commit_later(self) -> None:
        self.topic.clock.call_later(0, lambda: self._when_idle(self._committed))

    def _is_committed(self) -> bool:
        """Return whether the last record is committed.

        False also when the log says that leadership is lost: `close` is about to fail the waiting requests.
        """
        try:
            return self.last_written < self.topic.partition_log.high_watermark(self.tp)
        except KafkaError:
            return False

    def _wait(self, response: Response) -> None:
        offset = self.last_written
        asked = bool(self._waiting) and self._waiting[-1][0] == offset
        deadline_ms = self.topic.clock.mono_ms() + self.topic.commit_timeout_ms
        self._waiting.append((offset, deadline_ms, response))
        self._arm_timeout()
        if not asked:
            with suppress(KafkaError):  # leadership is lost, as above
                self.topic.partition_log.when_committed(self.tp, offset, lambda: self._when_idle(self._committed))

    def _arm_timeout(self) -> None:
        if self._timeout is None:
            self._timeout = self.topic.clock.call_later(self.topic.commit_timeout_ms, self._time_out)

    def _committed(self) -> None:
        try:
            high_watermark = self.topic.partition_log.high_watermark(self.tp)
        except KafkaError:  # leadership is lost, as above
            return
        left = REPLIES_A_TURN
        while self._waiting and self._waiting[0][0] < high_watermark:
            if not left:
                self._commit_later()
                return
            _, _, (reply, response) = self._waiting.popleft()
            isolated(reply.complete, response)
            left -= 1

    def _time_out(self) -> None:
        """Fail the responses whose time is over, because the followers are too slow: clients retry. The records stay in the log
        and may still be committed.
        """
        self._timeout = None
        now_ms = self.topic.clock.mono_ms()
        waiting = self._waiting
        while waiting and waiting[0][1] <= now_ms:
            _, _, (reply, _) = waiting.popleft()
            isolated(reply.complete, client_error(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        if waiting:
            self._timeout = self.topic.clock.call_later(waiting[0][1] - now_ms, self._time_out)

    def _append(self, outcome: Outcome[object]) -> None:
        topic, shard, producer = self.topic, self.shard, outcome.producer
        now_ms = topic.clock.wall_ms()
        bytes_max = None if outcome.atomic else topic.partition_log.max_batch_bytes(self.tp)
        producer_id = -1 if producer is None else producer.producer_id
        for batch, part in topic.codec.batches(outcome.records, now_ms, bytes_max, producer):
            last = topic.partition_log.append(self.tp, batch)
            offset = last - len(part) + 1
            try:
                assert offset > self.last_written, f"{self.tp}: appended at {offset} after {self.last_written}"
                for key, value in part:
                    shard.replay(offset, producer_id, key, value)
                    offset += 1
            except Exception:
                # Any error of a replay leaves the state without an appended record (invariant: state = replay of the log).
                self._memory_is_wrong()
                topic.stories.print_of(part)
                raise
            self.last_written = last
            topic.stories.appended(part)

    def end_transaction(self, producer: Producer, marker: EndTxnMarker, transaction_version: int) -> None:
        """Append a transaction's marker and replay it."""
        topic = self.topic
        batch = end_txn_batch(
            committed=marker.committed,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=topic.clock.wall_ms(),
        )
        self.last_written = topic.partition_log.append(self.tp, batch, transaction_version)
        try:
            self.shard.replay_end_transaction_marker(producer.producer_id, marker.committed)
        except Exception:
            # The marker is in the log and the state does not have it, as in `_append`.
            self._memory_is_wrong()
            raise

    def _memory_is_wrong(self) -> None:
        """Load the shard again and serve nothing from it until then: an appended record could not be replayed."""
        log.exception("%s-%d: a record was appended and cannot be replayed; loading again", *self.tp)
        self._become(CoordinatorState.FAILED)
        self.topic.clock.call_later(0, lambda: self._on_replay_failed(self))

    # ---- timers

    def _wake_up_changed(self, deadline_ms: int) -> None:
        if self.state is CoordinatorState.CLOSED or self._runs_timers:
            return
        if self._wake_up is not None:
            if self._wake_up_ms <= deadline_ms:
                return
            self._wake_up.cancel()
        self._arm(deadline_ms)

    def _arm(self, deadline_ms: int) -> None:
        clock = self.topic.clock
        self._wake_up_ms = deadline_ms
        self._wake_up = clock.call_later(max(0, deadline_ms - clock.mono_ms()), self._run_timers)

    def _run_timers(self) -> None:
        """Run the due timers: in this turn if it has time left, else after those of the shards that are waiting already."""
        self._wake_up, self._runs_timers = None, True
        self.topic.turns.timers.add(self._due_timers(), self._timers_done)

    def _due_timers(self) -> Iterator[None]:
        while self.state is CoordinatorState.ACTIVE and (due := self.timers.pop_due()) is not None:
            key, callback = due
            self.perform_unasked(by_timer(key), callback)
            yield

    def _timers_done(self, error: Exception | None) -> None:
        assert error is None, "a timer's error ends that timer only"
        self._runs_timers = False
        next_ms = self.timers.next_wake_up_ms()
        if self.state is CoordinatorState.ACTIVE and next_ms is not None:
            self._arm(next_ms)
