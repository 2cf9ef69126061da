"""Followers fetch: one loop and one connection per leader broker, for all partitions that it leads and this node follows.

    response                                what the follower does
    records                                 appends them, takes over watermark and log start, asks for what follows
    diverging epoch                         truncates by epochs (replication/truncation.py), asks again
    OFFSET_OUT_OF_RANGE                     requests the leader's first and last offset, then truncates or empties the log
    OFFSET_MOVED_TO_TIERED_STORAGE          begins behind what remote storage has (replication/remote_start.py)
    an error of leadership                  waits a moment: one of the two has not read the newest metadata yet
    a lost connection                       connects again; the metadata says when another broker leads

One fetch waits at the leader. When the metadata gives the loop something new meanwhile, a second request follows at once and the
leader answers the waiting one for it (broker/fetch/handler.py): a new leader must not stand still for replica.fetch.wait.max.ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Never

from ottla.broker.replication.disk_work import append_job, flush_when_there_is_room
from ottla.broker.replication.fetch_requests import FetcherSettings, FetchRequests, OneAnswer, answer_of, kept
from ottla.broker.replication.follower_session import (
    LEADERSHIP_ERRORS,
    SESSION_ERRORS,
    Followed,
    FollowerSession,
    Key,
    Wait,
    throttled_ms,
)
from ottla.broker.replication.leader_link import LeaderLink
from ottla.broker.replication.partition import EVERY_RECORD, Partition
from ottla.broker.replication.remote_start import begin_behind_remote
from ottla.broker.replication.truncation import Basis, agreed_end, go_to_leaders_range, truncate_after
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import EpochEndOffset, PartitionData
from ottla.protocol.work import TooLong
from ottla.server.clock import TimerHandle
from ottla.server.network.channel_protocol import ChannelProtocol
from ottla.server.network.wire import ChannelClosed
from ottla.server.workers import Priority
from ottla.server.world import World
from ottla.storage.errors import StorageFailure, UnexpectedAppendOffset
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import truncation_job

log = logging.getLogger(__name__)

#: The retry interval while a leader does not know yet that it leads, or leads no longer: metadata arrives within a few
#: milliseconds.
LEADERSHIP_RETRY_MS = 10
#: One long poll waits at the leader, and one further request can interrupt it.
IN_FLIGHT_MAX = 2
#: Time slice per Fetch response before the fetcher yields: a response can have the first records of a thousand partitions, each of which creates files.
TURN_MS = 20
#: The limit of partitions whose files are created together, before the first append of a response.
DISK_JOBS_AT_ONCE = 32
#: Debounce: partition changes within this time share one Fetch.
NEWS_DELAY_MS = 1


class LeaderFetcher:
    """The loop for one leader broker. It has no task: each response sends the next request."""

    def __init__(
        self,
        world: World,
        settings: FetcherSettings,
        leader_id: int,
        locate: Callable[[], RegisteredEndpoint | None],
        broker_epoch: Callable[[], int],
    ) -> None:
        self.leader_id = leader_id
        self.session = FollowerSession(settings.partition_bytes_max)
        self._world = world
        self._settings = settings
        client_id = f"broker-{settings.node_id}-fetcher-{leader_id}"
        self.link = LeaderLink(world, leader_id, client_id, settings.security, locate)
        self._requests = FetchRequests(settings, client_id, self.session, broker_epoch)
        self._connecting = False
        self._in_flight = 0
        self._timer: TimerHandle | None = None
        self._timer_ms = 0
        self._closed = False

    def follow(self, partition: Partition) -> None:
        self.session.add(partition)
        self._flush_first(partition)
        self._schedule(NEWS_DELAY_MS)

    def unfollow(self, partition: Partition) -> None:
        self.session.remove(partition)
        self._schedule(NEWS_DELAY_MS)

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._drop_connection()

    # -- Turns -------------------------------------------------------------------------------------------------------

    def _schedule(self, delay_ms: int) -> None:
        """Take a turn after the delay, unless there will be one before."""
        due_ms = self._world.clock.mono_ms() + delay_ms
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._world.clock.call_later(delay_ms, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._turn()

    def _turn(self) -> None:
        if self._closed or self._connecting:
            return
        session = self.session
        if session.delayed and (next_ms := session.resume(self._world.clock.mono_ms())) >= 0:
            self._schedule(max(1, next_ms - self._world.clock.mono_ms()))
        may_send = not self._in_flight or (session.has_news and self._in_flight < IN_FLIGHT_MAX)
        if not may_send or not (session.followed or session.is_open):
            return
        protocol = self.link.protocol
        if protocol is None or protocol.closed:
            if session.followed:
                self._connecting = True
                self._world.spawn(self._connect(), f"fetcher {self.leader_id}")
            return
        self._send(protocol)

    def _send(self, protocol: ChannelProtocol) -> None:
        answered = partial(self._answered, protocol, self.session.number + 1)
        try:
            if not self._requests.send(protocol, self.link.version, answered):
                return
        except ChannelClosed as error:
            self._lost(error)
            return
        self._in_flight += 1

    def _answered(self, protocol: ChannelProtocol, number: int, response: Any, failure: ChannelClosed | None) -> None:
        """The leader's `response` is a FetchResponse, or the OneAnswer that it usually is."""
        if protocol is not self.link.protocol:
            return  # the response is of a connection that was given up
        if failure is not None:
            self._lost(failure)
            return
        self.link.answered()
        if response.__class__ is OneAnswer:
            self._handle_one(protocol, number, response)
        elif response.error_code != ErrorCode.NONE:
            self._refused(ErrorCode(response.error_code))
        else:
            self.session.answered(response.session_id)
            responses = [(topic.topic_id, data) for topic in response.responses for data in topic.partitions]
            self._handle(protocol, number, responses)

    def _refused(self, code: ErrorCode) -> None:
        log.info("Broker %d answered a fetch with %s", self.leader_id, code.name)
        if code not in SESSION_ERRORS:
            self._give_up()
            return
        self.session.reset()
        self._in_flight -= 1
        self._turn()

    def _give_up(self) -> None:
        self._drop_connection()
        self._schedule(self._settings.backoff_ms)

    # -- The connection ----------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        try:
            protocol, version = await self.link.connect()
        except ChannelClosed as error:
            self._lost(error)
            return
        except Exception as error:
            # A bug, but this leader must be fetched from again.
            log.exception("Could not connect to broker %d", self.leader_id)
            self._lost(error)
            return
        finally:
            self._connecting = False
        self._connected(protocol, version)

    def _connected(self, protocol: ChannelProtocol, version: int) -> None:
        self.link.connected(protocol, version)
        # A response of the former connection may still be handled, while its directories are made on a worker. `_handle`
        # drops it, so that it cannot count its request as answered: the fetcher would wait for it for ever.
        self._in_flight = 0
        if self._closed:
            self._drop_connection()
            return
        self.session.reset()
        self._turn()

    def _lost(self, error: Exception) -> None:
        if self._closed:
            return
        log.info("Fetcher of leader %d: %s", self.leader_id, error)
        self._drop_connection()
        self._schedule(self.link.next_retry_ms())

    def _drop_connection(self) -> None:
        self._in_flight = 0
        self.link.drop()
        self.session.reset()

    # -- Responses ---------------------------------------------------------------------------------------------------

    def _handle_one(self, protocol: ChannelProtocol, number: int, answer: OneAnswer) -> None:
        """Handle the usual response as `_handle` does."""
        session = self.session
        session.answered(answer.session_id)
        if (followed := session.asked(answer.key, number)) is not None:
            try:
                self._take(followed, answer)
            except TooLong:
                left = [(answer.key[0], answer.kept())]
                self._world.spawn(self._run_disk_jobs(protocol, number, left), f"logs for {self.leader_id}")
                return
        self._in_flight -= 1
        self._turn()

    def _handle(
        self, protocol: ChannelProtocol, number: int, responses: Sequence[tuple[bytes, PartitionData]], ready: int = 0
    ) -> None:
        """Handle the response to request `number` in turns; the next request follows after the last turn.

        The disk jobs of the logs of the first `ready` partitions have been run (`Room.disk_job`): creation of files, and rolls.
        """
        if protocol is not self.link.protocol:
            return  # lost since the turn before
        turn_ends_ms = self._world.clock.mono_ms() + TURN_MS if len(responses) > 1 else 0
        try:
            for i, (topic_id, data) in enumerate(responses):
                if i and self._world.clock.mono_ms() > turn_ends_ms:
                    left = [(topic_id, kept(data)) for topic_id, data in responses[i:]]
                    # `begin_in_turns` would be slower here: most responses are handled in one turn, and a generator would be made for each.
                    self._world.clock.call_later(0, partial(self._handle, protocol, number, left, ready - i))
                    return
                key = (topic_id, data.partition_index)
                if (followed := self.session.asked(key, number)) is not None:
                    self._take(followed, answer_of(data, key), data, may_wait=i < ready)
        except TooLong:
            left = [(topic_id, kept(data)) for topic_id, data in responses[i:]]
            self._world.spawn(self._run_disk_jobs(protocol, number, left), f"logs for {self.leader_id}")
            return
        except Exception:
            # A bug that one response meets must not end replication for good.
            log.exception("An answer of broker %d could not be handled", self.leader_id)
            self._give_up()
            return
        self._in_flight -= 1
        self._turn()

    async def _run_disk_jobs(
        self, protocol: ChannelProtocol, number: int, responses: Sequence[tuple[bytes, PartitionData]]
    ) -> None:
        """Run on several threads: while one waits for the file system, the others proceed."""
        ready = min(len(responses), DISK_JOBS_AT_ONCE)
        now_ms = self._world.clock.wall_ms()
        jobs = []
        for topic_id, data in responses[:ready]:
            key = (topic_id, data.partition_index)
            if (followed := self.session.asked(key, number)) is not None:
                jobs.append(append_job(followed.partition.log, answer_of(data, key).records, now_ms))
        on_disk = self._world.workers.on_disk
        await asyncio.gather(*(on_disk(job.directory, Priority.ROLL, job.run) for job in jobs if job))
        self._handle(protocol, number, responses, ready)

    def _take(
        self, followed: Followed, answer: OneAnswer, data: PartitionData | None = None, *, may_wait: bool = False
    ) -> None:
        """Take what the leader has sent for a partition; `data` has more where it may be an error, or another end of an epoch.

        Raise TooLong, and change nothing, if the log needs the disk first and `may_wait` is False.
        """
        partition, sent, key = followed.partition, followed.sent, answer.key
        own_log = partition.log
        if (
            own_log is None
            or sent is None
            or partition.leader_id != self.leader_id
            or partition.leader_epoch != sent.leader_epoch
            or own_log.log_end_offset != sent.fetch_offset
        ):
            self.session.changed(key)
            return
        try:
            if data is not None and data.error_code != ErrorCode.NONE:
                self._handle_error(key, partition, own_log, ErrorCode(data.error_code))
            elif data is not None and data.diverging_epoch.epoch >= 0:
                self._truncate(key, partition, own_log, data.diverging_epoch)
            else:
                _, _, high_watermark, log_start_offset, records = answer
                now_ms = self._world.clock.wall_ms()
                partition.append_as_follower(records, high_watermark, log_start_offset, now_ms, may_wait=may_wait)
                pause_ms = 0 if partition.follower_throttle is None else throttled_ms(partition, len(records))
                if partition.flushes and self._flush_first(partition):
                    pass
                elif pause_ms:
                    self._delay(key, pause_ms)
                    self._schedule(pause_ms)
                elif records or own_log.log_start_offset != sent.log_start_offset:
                    self.session.changed(key)
        except (KafkaError, StorageFailure, UnexpectedAppendOffset) as failure:
            log.error("Records of %s from broker %d were not appended: %s", partition, self.leader_id, failure)
            self._delay(key, self._settings.backoff_ms)
        except TooLong:
            raise
        except Exception:
            # A bug, such as a truncation that would cut acknowledged records, must not stop the fetches of other partitions.
            log.exception("An answer of broker %d for %s could not be handled", self.leader_id, partition)
            self._delay(key, self._settings.backoff_ms)

    def _flush_first(self, partition: Partition) -> bool:
        """Return True if the partition is not fetched before its log has been flushed.

        With flush.messages=1 a record counts at the leader when it is on this disk. The next fetch acknowledges it, to this leader or, after
        an election, to the next one, and so it comes after the flush.
        """
        own_log = partition.log
        if (
            partition.flush_messages != EVERY_RECORD
            or own_log is None
            or own_log.recovery_point >= own_log.log_end_offset
        ):
            return False
        wait = self.session.await_flush((partition.topic_id, partition.index), own_log)
        if wait is not None:
            self._world.spawn(self._flush(wait, own_log), f"flush {partition}")
        return True

    async def _flush(self, wait: Wait, own_log: Log) -> None:
        """Flush the log, whatever a truncation has left in it; a failure takes the log directory offline."""
        try:
            while not await flush_when_there_is_room(self._world, own_log, self._settings.backoff_ms):
                if own_log.closed:
                    break
        except StorageFailure as failure:
            log.error("flush of %s: %s", own_log, failure)
            return
        self._go_on(wait, 0)

    def _handle_error(self, key: Key, partition: Partition, own_log: Log, code: ErrorCode) -> None:
        basis, asking = Basis.of(partition, own_log), (self._world, self.link, self._settings.timeout_ms)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._begin_truncation(key, partition, go_to_leaders_range(*asking, basis))
        elif code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._begin_truncation(key, partition, begin_behind_remote(*asking, basis, self._settings.remote_states))
        elif code in LEADERSHIP_ERRORS:
            self._delay(key, LEADERSHIP_RETRY_MS)
        else:
            log.warning("Broker %d answered a fetch of %s with %s", self.leader_id, partition, code.name)
            self._delay(key, self._settings.backoff_ms)

    def _delay(self, key: Key, delay_ms: int) -> None:
        self.session.delay(key, self._world.clock.mono_ms() + delay_ms)

    def _truncate(self, key: Key, partition: Partition, own_log: Log, leader: EpochEndOffset) -> None:
        offset = agreed_end(own_log, leader)
        job = truncation_job(own_log, offset)
        if job is None:
            partition.truncate_as_follower(offset)
            if not self._flush_first(partition):
                self.session.changed(key)
            return
        self._begin_truncation(key, partition, truncate_after(self._world, job, Basis.of(partition, own_log), offset))

    def _begin_truncation(self, key: Key, partition: Partition, truncation: Coroutine[Any, Never, None]) -> None:
        wait = self.session.await_truncation(key)
        self._world.spawn(self._run_truncation(wait, partition, truncation), f"truncate {partition}")

    async def _run_truncation(self, wait: Wait, partition: Partition, truncation: Coroutine[Any, Never, None]) -> None:
        delay_ms = self._settings.backoff_ms
        try:
            await truncation
            delay_ms = 0
        except (KafkaError, ChannelClosed, StorageFailure) as failure:
            log.error("%s was not truncated to the log of broker %d: %s", partition, self.leader_id, failure)
        finally:
            self._go_on(wait, delay_ms)

    def _go_on(self, wait: Wait, delay_ms: int) -> None:
        """Fetch the partition again after the delay, and after the flush of the records that its log has got meanwhile. If the
        wait is over already, do nothing.
        """
        partition = self.session.end(wait, self._world.clock.mono_ms() + delay_ms)
        if partition is not None and (delay_ms or not self._flush_first(partition)):
            self._schedule(delay_ms)
