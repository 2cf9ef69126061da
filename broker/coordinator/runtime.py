"""The host of all coordinator shards of one internal topic: decide, append, replay, commit, reply.

A shard is the state that one partition of the topic describes. It exists while this broker leads the partition: it is
loaded by replaying the log, and dropped, its waiting requests failed, when leadership goes. From a decision to the end
of its replay nothing awaits, so there are no locks and no undo. An answer leaves once the newest offset that it could
have seen is committed; with one replica that is at once.

It knows nothing of groups or transactions (their shards do), of networks, and of where the log is kept.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Concatenate, Generic, ParamSpec, TypeVar

from ottla.broker.coordinator import batches
from ottla.broker.coordinator.loading import Loader, LoadQueue
from ottla.broker.coordinator.outcome import Outcome, Producer, Response, Unasked
from ottla.broker.coordinator.partition_log import PartitionLog, TopicPartition
from ottla.broker.coordinator.shard import RecordCodec, Shard
from ottla.broker.coordinator.timers import Timers
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import EndTxnMarker, end_txn_batch
from ottla.server.clock import Clock, TimerHandle
from ottla.server.isolation import isolated
from ottla.server.network.reply import Answer, Reply

log = logging.getLogger(__name__)

ShardT = TypeVar("ShardT", bound=Shard)
T = TypeVar("T")
P = ParamSpec("P")
OnError = Callable[[KafkaError], T]

# Error of an append -> error for the client of a coordinator, so that it looks for the coordinator
# again, or tries again, as its age allows.
APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class State(Enum):
    LOADING = 0
    ACTIVE = 1
    FAILED = 2  # the log could not be read, or memory is not what it says: NOT_COORDINATOR until it is loaded again
    CLOSED = 3


TRANSITIONS: dict[State, dict[State, str]] = {
    State.LOADING: {
        State.ACTIVE: "the log is replayed up to its end",
        State.FAILED: "the log cannot be read",
        State.CLOSED: "another broker leads the partition, or it is deleted",
    },
    State.ACTIVE: {
        State.FAILED: "a record was appended that cannot be replayed: memory and log differ",
        State.CLOSED: "another broker leads the partition, or it is deleted",
    },
    State.FAILED: {
        State.CLOSED: "loaded again (as a new context), led elsewhere, or deleted",
    },
    State.CLOSED: {},
}


class CoordinatorRuntime(Generic[ShardT]):
    """`shard_factory(timers)` makes an empty shard; an answer waits `commit_timeout_ms` at most to be committed.

    Runtimes of one broker share a `load_queue`, so that they share its budget of a turn.
    """

    def __init__(
        self,
        topic: str,
        partition_log: PartitionLog,
        clock: Clock,
        codec: RecordCodec,
        shard_factory: Callable[[Timers], ShardT],
        commit_timeout_ms: int,
        load_queue: LoadQueue | None = None,
    ) -> None:
        self.topic = topic
        self.partition_log = partition_log
        self.clock = clock
        self.codec = codec
        self.shard_factory = shard_factory
        self.commit_timeout_ms = commit_timeout_ms
        self.load_queue = LoadQueue(clock) if load_queue is None else load_queue
        self._contexts: dict[int, _Context[ShardT]] = {}

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on: load it.

        A broker that goes on leading in a later epoch has everything already; one that could not load tries again.
        """
        context = self._contexts.get(partition)
        if context is not None:
            if context.state is not State.FAILED:
                context.leader_epoch = max(context.leader_epoch, leader_epoch)
                return
            context.close()
        self._load(partition, leader_epoch)

    def _load(self, partition: int, leader_epoch: int) -> None:
        context = self._contexts[partition] = _Context(self, partition, leader_epoch)
        context.load()

    def reload(self, partition: int, failed: _Context[ShardT]) -> None:
        """Memory and log differ since a record was appended that could not be replayed: begin again with the log."""
        if self._contexts.get(partition) is failed:
            failed.close()
            self._load(partition, failed.leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """The partition is led elsewhere or deleted: drop the shard, fail what waits."""
        context = self._contexts.pop(partition, None)
        if context is not None:
            context.close()

    def close(self) -> None:
        """Drop all shards."""
        for partition in list(self._contexts):
            self.on_resigned(partition)

    def active_partitions(self) -> list[int]:
        """Returns the partitions whose shard is loaded, so that requests are served and not answered COORDINATOR_LOAD_IN_PROGRESS."""
        return sorted(partition for partition, context in self._contexts.items() if context.state is State.ACTIVE)

    def partitions(self) -> list[int]:
        """Returns the partitions led by this broker, loaded or not."""
        return sorted(self._contexts)

    def shard(self, partition: int) -> ShardT:
        """The loaded shard; KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS where there is none."""
        return self._active(partition).shard

    def write(
        self,
        partition: int,
        decide: Callable[Concatenate[ShardT, int, P], Outcome[T]],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        """The response of `decide(shard, now_ms, *args)`, once everything it could have seen is committed.

        `on_error` makes the API's response of an error, whichever step fails.
        """
        try:
            context = self._active(partition)
            response = context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))
            assert response is not None, "a decision gave no response"
            return context.answer(response, on_error)
        except KafkaError as error:
            return on_error(client_error(error))

    def write_later(
        self,
        partition: int,
        decide: Callable[Concatenate[ShardT, int, P], Outcome[T]],
        reply: Reply[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """As `write`, through a reply that the shard may keep and complete with a later decision."""
        try:
            context = self._active(partition)
            response = context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))
            if response is not None:
                context.complete(reply, response)
        except KafkaError as error:
            reply.complete(client_error(error))

    def write_unasked(
        self, partition: int, decide: Callable[Concatenate[ShardT, int, P], Unasked], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Let the shard decide on an event; KafkaError when it is not loaded or the log refuses the records."""
        context = self._active(partition)
        context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))

    def read(
        self,
        partition: int,
        look: Callable[Concatenate[ShardT, P], T],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        """The response `look(shard, *args)`, once everything it could have seen is committed."""
        try:
            context = self._active(partition)
            return context.answer(look(context.shard, *args, **kwargs), on_error)
        except KafkaError as error:
            return on_error(client_error(error))

    def end_transaction(
        self,
        partition: int,
        producer: Producer,
        marker: EndTxnMarker,
        transaction_version: int,
    ) -> Answer[ErrorCode]:
        """Write the marker that ends the producer's transaction in this partition; NONE when it is committed."""
        try:
            context = self._active(partition)
            context.end_transaction(producer, marker, transaction_version)
            return context.answer(ErrorCode.NONE, error_code)
        except KafkaError as error:
            return client_error(error).code

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which this broker leads the partition; KafkaError as `shard`."""
        return self._active(partition).leader_epoch

    def write_all(
        self, decide: Callable[Concatenate[ShardT, int, P], Unasked], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Runs a decision of every loaded shard about an event without a request."""
        for context in list(self._contexts.values()):
            if context.state is State.ACTIVE:
                context.perform_unasked(partial(decide, context.shard, self.clock.wall_ms(), *args, **kwargs))

    def _active(self, partition: int) -> _Context[ShardT]:
        context = self._contexts.get(partition)
        if context is None or context.state is State.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if context.state is State.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return context


def client_error(error: KafkaError) -> KafkaError:
    """The error as clients of a coordinator know it."""
    mapped = APPEND_ERRORS.get(error.code)
    return error if mapped is None else KafkaError(mapped)


def error_code(error: KafkaError) -> ErrorCode:
    """The response of what answers with a code alone."""
    return error.code


class _Context(Generic[ShardT]):
    """One partition: its shard, its timers, and the answers that wait for the high watermark."""

    def __init__(self, runtime: CoordinatorRuntime[ShardT], partition: int, leader_epoch: int) -> None:
        self.runtime = runtime
        self.tp: TopicPartition = (runtime.topic, partition)
        self.leader_epoch = leader_epoch
        self.state = State.LOADING
        self.timers = Timers(runtime.clock.mono_ms, self._wake_up_changed)
        self.shard = runtime.shard_factory(self.timers)
        self.last_written = -1
        self._began_ms = runtime.clock.mono_ms()
        # (offset, deadline, reply and response); neither offsets nor deadlines ever fall.
        self._waiting: deque[tuple[int, int, Response]] = deque()
        self._timeout: TimerHandle | None = None
        self._wake_up: TimerHandle | None = None
        self._wake_up_ms = 0
        self._busy = False
        self._was_active = False
        self._loader: Loader | None = None

    def load(self) -> None:
        """Replay the log when the queue comes to it."""
        log.info("Scheduling loading of metadata from %s-%d with epoch %d", *self.tp, self.leader_epoch)
        try:
            self._loader = loader = Loader(self.runtime.partition_log, self.tp, self.runtime.codec, self.shard)
        except KafkaError as error:
            self._loaded(-1, error)
            return
        self.runtime.load_queue.load(loader, lambda error: self._loaded(loader.offset - 1, error))

    def _loaded(self, last_offset: int, error: Exception | None) -> None:
        if self.state is not State.LOADING:
            return
        if error is not None:
            log.error("Failed to load metadata from %s-%d with epoch %d", *self.tp, self.leader_epoch, exc_info=error)
            self._become(State.FAILED)
            return
        self.last_written = last_offset
        self._was_active = True
        log.info(
            "Finished loading of metadata from %s-%d with epoch %d in %d ms; loaded up to offset %d",
            *self.tp,
            self.leader_epoch,
            self.runtime.clock.mono_ms() - self._began_ms,
            last_offset,
        )
        self._become(State.ACTIVE)
        self.perform_unasked(lambda: self.shard.on_loaded(self.runtime.clock.wall_ms()))

    def close(self) -> None:
        """Fail everything that waits; NOT_COORDINATOR makes clients look for the new one."""
        log.info("Unloading metadata for %s-%d with epoch %d", *self.tp, self.leader_epoch)
        self._become(State.CLOSED)
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

    def _become(self, state: State) -> None:
        assert state in TRANSITIONS[self.state], f"{self.tp} goes from {self.state} to {state}"
        self.state = state

    def perform(self, outcome: Outcome[T]) -> T | None:
        """Append, replay, go on with `then`, send `replies` when they are committed; gives the request's own response."""
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
                    except KafkaError as refusal:
                        error = client_error(refusal)
                        if outcome.refused is not None:
                            following, error = outcome.refused(error), None
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
        for reply, its_response in replies:
            self.complete(reply, its_response)
        for callback in committed:
            self._when_committed(callback)
        if error is not None:
            raise error
        return response

    def perform_unasked(self, decide: Callable[[], Unasked]) -> None:
        """For timers and events: an error has no request to answer, and whatever it is, it ends this one only.

        The other sessions and rebalances of the shard depend on their timers.
        """
        try:
            self.perform(decide())
        except KafkaError as error:
            log.warning("%s-%d could not write: %s", *self.tp, error)
        except Exception:
            log.exception("%s-%d: a timer or an event failed", *self.tp)

    def answer(self, response: T, on_error: OnError[T]) -> Answer[T]:
        """The response itself when all it could have seen is committed, else a reply."""
        if self._is_committed():
            return response
        reply = Reply(on_error)
        self._wait((reply, response))
        return reply

    def _when_committed(self, callback: Callable[[], None]) -> None:
        if self._is_committed():
            isolated(callback)
            return
        with suppress(KafkaError):  # leadership is lost: then it never is
            self.runtime.partition_log.when_committed(self.tp, self.last_written, lambda: self._when_idle(callback))

    def _when_idle(self, callback: Callable[[], None]) -> None:
        """Call back now, or after the decision under way.

        An append may raise the high watermark by itself, and what waits for that would then decide inside of the append,
        before its records are replayed. Kafka has an ActionQueue for this.
        """
        if self.state is not State.ACTIVE:
            return
        if self._busy:
            self.runtime.clock.call_later(0, lambda: self._when_idle(callback))
        else:
            isolated(callback)

    def complete(self, reply: Reply[T], response: T) -> None:
        """Complete the reply when all that its response could have seen is committed."""
        if self._is_committed():
            isolated(reply.complete, response)
        else:
            self._wait((reply, response))

    def _is_committed(self) -> bool:
        """False also when the log says that leadership is lost: `close` is about to fail what waits."""
        try:
            return self.last_written < self.runtime.partition_log.high_watermark(self.tp)
        except KafkaError:
            return False

    def _wait(self, response: Response) -> None:
        offset = self.last_written
        asked = bool(self._waiting) and self._waiting[-1][0] == offset
        deadline_ms = self.runtime.clock.mono_ms() + self.runtime.commit_timeout_ms
        self._waiting.append((offset, deadline_ms, response))
        if self._timeout is None:
            self._timeout = self.runtime.clock.call_later(self.runtime.commit_timeout_ms, self._time_out)
        if not asked:
            with suppress(KafkaError):  # leadership is lost, as above
                self.runtime.partition_log.when_committed(self.tp, offset, lambda: self._when_idle(self._committed))

    def _committed(self) -> None:
        try:
            high_watermark = self.runtime.partition_log.high_watermark(self.tp)
        except KafkaError:  # leadership is lost, as above
            return
        waiting = self._waiting
        while waiting and waiting[0][0] < high_watermark:
            _, _, (reply, response) = waiting.popleft()
            isolated(reply.complete, response)

    def _time_out(self) -> None:
        """Times out, because the followers are too slow: clients retry. The records stay in the log and may still be committed."""
        self._timeout = None
        now_ms = self.runtime.clock.mono_ms()
        waiting = self._waiting
        while waiting and waiting[0][1] <= now_ms:
            _, _, (reply, _) = waiting.popleft()
            isolated(reply.complete, client_error(KafkaError(ErrorCode.REQUEST_TIMED_OUT)))
        if waiting:
            self._timeout = self.runtime.clock.call_later(waiting[0][1] - now_ms, self._time_out)

    def _append(self, outcome: Outcome[object]) -> None:
        runtime, shard, producer = self.runtime, self.shard, outcome.producer
        now_ms = runtime.clock.wall_ms()
        bytes_max = None if outcome.atomic else runtime.partition_log.max_batch_bytes(self.tp)
        producer_id = -1 if producer is None else producer.producer_id
        for batch, part in batches.build(runtime.codec, outcome.records, now_ms, bytes_max, producer):
            last = runtime.partition_log.append(self.tp, batch)
            offset = last - len(part) + 1
            try:
                assert offset > self.last_written, f"{self.tp}: appended at {offset} after {self.last_written}"
                for key, value in part:
                    shard.replay(offset, producer_id, key, value)
                    offset += 1
            except Exception:
                self._memory_is_wrong()
                raise
            self.last_written = last

    def end_transaction(self, producer: Producer, marker: EndTxnMarker, transaction_version: int) -> None:
        """Append a transaction's marker and replay it."""
        runtime = self.runtime
        batch = end_txn_batch(
            committed=marker.committed,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=runtime.clock.wall_ms(),
        )
        self.last_written = runtime.partition_log.append(self.tp, batch, transaction_version)
        try:
            self.shard.replay_end_transaction_marker(producer.producer_id, marker.committed)
        except Exception:
            self._memory_is_wrong()
            raise

    def _memory_is_wrong(self) -> None:
        """What was appended could not be replayed: serve nothing from this shard any more, load it again."""
        log.exception("%s-%d: a record was appended and cannot be replayed; loading again", *self.tp)
        self._become(State.FAILED)
        self.runtime.clock.call_later(0, lambda: self.runtime.reload(self.tp[1], self))

    # ---- timers

    def _wake_up_changed(self, deadline_ms: int) -> None:
        if self.state is State.CLOSED:
            return
        if self._wake_up is not None:
            if self._wake_up_ms <= deadline_ms:
                return
            self._wake_up.cancel()
        self._arm(deadline_ms)

    def _arm(self, deadline_ms: int) -> None:
        clock = self.runtime.clock
        self._wake_up_ms = deadline_ms
        self._wake_up = clock.call_later(max(0, deadline_ms - clock.mono_ms()), self._run_timers)

    def _run_timers(self) -> None:
        self._wake_up = None
        while self.state is State.ACTIVE and (callback := self.timers.pop_due()) is not None:
            self.perform_unasked(callback)
        next_ms = self.timers.next_wake_up_ms()
        if self.state is State.ACTIVE and next_ms is not None and self._wake_up is None:
            self._arm(next_ms)
