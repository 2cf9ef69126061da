"""The host of all coordinator shards of one internal topic: decide, append, replay, commit, reply.

A shard is the state that one partition of the topic describes. It exists while this broker leads the partition: it is
loaded by replaying the log, and dropped, its waiting requests failed, when leadership goes. A request goes to the context
of its partition (`broker/coordinator/context.py`). A response is sent once the newest offset that it could have seen is
committed; with one replica that is at once.

It knows nothing of groups or transactions (their shards do), of networks, and of where the log is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Concatenate, Generic, ParamSpec, TypeVar

from ottla.broker.coordinator.context import CoordinatorContext, CoordinatorState, InternalTopic
from ottla.broker.coordinator.outcome import OnError, Outcome, Producer, Unasked, client_error, error_code
from ottla.broker.coordinator.partition_log import PartitionLog
from ottla.broker.coordinator.shard import LoadTimes, RecordCodec, Shard
from ottla.broker.coordinator.stories import CoordinatorStories
from ottla.broker.coordinator.timers import Timers
from ottla.broker.coordinator.turns import ShardTurns
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.records.control import EndTxnMarker
from ottla.server.clock import Clock
from ottla.server.network.context import Answer, Reply
from ottla.server.story import Cause, because

ShardT = TypeVar("ShardT", bound=Shard)
T = TypeVar("T")
P = ParamSpec("P")


class CoordinatorRuntime(Generic[ShardT]):
    """The runtime of one coordinator. `shard_factory(timers)` makes an empty shard; a response waits `commit_timeout_ms` at most to be committed.

    Runtimes of one broker share `turns`, so that they share the budget of a turn.
    """

    def __init__(
        self,
        topic: str,
        partition_log: PartitionLog,
        clock: Clock,
        codec: RecordCodec,
        shard_factory: Callable[[Timers], ShardT],
        commit_timeout_ms: int,
        turns: ShardTurns | None = None,
        stories: CoordinatorStories | None = None,
    ) -> None:
        self.clock = clock
        self.stories = CoordinatorStories(topic, clock.wall_ms) if stories is None else stories
        self.turns = ShardTurns(clock) if turns is None else turns
        self.load_times = LoadTimes()
        self.topic = topic
        self._topic = InternalTopic(
            topic,
            partition_log,
            clock,
            codec,
            shard_factory,
            commit_timeout_ms,
            self.turns,
            self.load_times,
            self.stories,
        )
        self._contexts: dict[int, CoordinatorContext[ShardT]] = {}

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """This broker leads the partition from now on: load it.

        A broker that goes on leading in a later epoch has everything already; one that could not load tries again.
        """
        context = self._contexts.get(partition)
        if context is not None:
            if context.state is not CoordinatorState.FAILED:
                context.leader_epoch = max(context.leader_epoch, leader_epoch)
                return
            context.close()
        self._load(partition, leader_epoch)

    def _load(self, partition: int, leader_epoch: int) -> None:
        context = CoordinatorContext(self._topic, partition, leader_epoch, self._reload)
        self._contexts[partition] = context
        context.load()

    def reload(self, partition: int) -> None:
        """Load the log again, because another than this coordinator has written to it."""
        context = self._contexts.get(partition)
        if context is not None:
            self._reload(context)

    def _reload(self, failed: CoordinatorContext[ShardT]) -> None:
        """Load the shard again from the log, because its state differs since an appended record could not be replayed."""
        partition = failed.tp[1]
        if self._contexts.get(partition) is failed:
            failed.close()
            self._load(partition, failed.leader_epoch)

    def on_resigned(self, partition: int) -> None:
        """Drop the shard and fail its waiting requests, because the partition is led elsewhere or deleted."""
        context = self._contexts.pop(partition, None)
        if context is not None:
            context.close()

    def close(self) -> None:
        """Drop all shards."""
        for partition in list(self._contexts):
            self.on_resigned(partition)

    def active_partitions(self) -> list[int]:
        """Return the partitions whose shard is loaded, so that requests are served and not answered COORDINATOR_LOAD_IN_PROGRESS."""
        return sorted(
            partition for partition, context in self._contexts.items() if context.state is CoordinatorState.ACTIVE
        )

    def states(self) -> Counter[CoordinatorState]:
        """Return how many partitions are in each state."""
        return Counter(context.state for context in self._contexts.values())

    def partitions(self) -> list[int]:
        """Return the partitions led by this broker, loaded or not."""
        return sorted(self._contexts)

    def shard(self, partition: int) -> ShardT:
        """Return the loaded shard. Raises KafkaError NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS if it is not loaded."""
        return self._active(partition).shard

    def write(
        self,
        partition: int,
        decide: Callable[Concatenate[ShardT, int, P], Outcome[T]],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        """Return the response of `decide(shard, now_ms, *args)`, once everything it could have seen is committed.

        `on_error` makes the API's response of an error, whichever step fails.
        """
        try:
            context = self._active(partition)
            response = context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))
            assert response is not None, "a decision gave no response"
            return context.when_seen_is_committed(response, on_error)
        except KafkaError as error:
            return on_error(client_error(error))
        except AssertionError:
            self.stories.print_subject()
            raise

    def write_later(
        self,
        partition: int,
        decide: Callable[Concatenate[ShardT, int, P], Outcome[T]],
        reply: Reply[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Like `write`, with a reply that the shard may keep and complete with a later decision."""
        try:
            context = self._active(partition)
            response = context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))
            if response is not None:
                context.complete(reply, response)
        except KafkaError as error:
            reply.complete(client_error(error))
        except AssertionError:
            self.stories.print_subject()
            raise

    def write_unasked(
        self, partition: int, decide: Callable[Concatenate[ShardT, int, P], Unasked], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Let the shard decide on an event; KafkaError when it is not loaded or the log rejects the records."""
        context = self._active(partition)
        try:
            context.perform(decide(context.shard, self.clock.wall_ms(), *args, **kwargs))
        except AssertionError:
            self.stories.print_subject()
            raise

    def read(
        self,
        partition: int,
        look: Callable[Concatenate[ShardT, P], T],
        on_error: OnError[T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Answer[T]:
        """Return the response `look(shard, *args)`, once everything it could have seen is committed."""
        try:
            context = self._active(partition)
            return context.when_seen_is_committed(look(context.shard, *args, **kwargs), on_error)
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
            return context.when_seen_is_committed(ErrorCode.NONE, error_code)
        except KafkaError as error:
            return client_error(error).code

    def tenure(self, partition: int) -> Callable[[], bool]:
        """Return a function that is True as long as the shard is the present one: this broker coordinates it, in the leader epoch of now."""
        context = self._contexts.get(partition)
        return lambda: context is not None and self._contexts.get(partition) is context

    def leader_epoch(self, partition: int) -> int:
        """Return the epoch in which this broker leads the partition; KafkaError as `shard`."""
        return self._active(partition).leader_epoch

    def write_all(
        self, decide: Callable[Concatenate[ShardT, int, P], Unasked], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Let every loaded shard decide about an event that has no request. If that takes long, the decision begins a sweep by
        a timer.
        """
        cause = _event(decide)
        for context in list(self._contexts.values()):
            if context.state is CoordinatorState.ACTIVE:
                context.perform_unasked(cause, partial(decide, context.shard, self.clock.wall_ms(), *args, **kwargs))

    def _active(self, partition: int) -> CoordinatorContext[ShardT]:
        context = self._contexts.get(partition)
        if context is None or context.state is CoordinatorState.FAILED:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        if context.state is CoordinatorState.LOADING:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return context


def _event(decide: Callable[..., object]) -> Cause:
    """Return the cause of a decision without a request, which is named as the function that makes it."""
    return because(getattr(decide, "__name__", "event"))
