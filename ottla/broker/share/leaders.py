"""The share partitions that this broker leads, by partition and group, and the share sessions of their members.

A share partition is loaded by the first fetch of it. It is forgotten when this broker stops to lead the partition or leads it in
another epoch, when the share coordinator refuses its leader, and when the last session of its group at this broker has ended
with its connection.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.broker.configs import BrokerConfigs
from ottla.broker.long_work import LongWork
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.replication.wakeups import Wakeups
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.group_settings import BY_DURATION, EARLIEST, GroupSettings, GroupSettingsView, duration_ms
from ottla.broker.share.led_partition import DeadLetters, LedSharePartition
from ottla.broker.share.persister import Persister
from ottla.broker.share.share_session import ShareSession, ShareSessions, TopicPartition
from ottla.broker.share.share_state import SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.work import Turn
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply
from ottla.server.timer_wheel import TimerWheel
from ottla.server.world import World
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.log import lookup
from ottla.storage.log.log import Log

Found = Callable[[int | KafkaError], None]


class ShareLeaders:
    """Loads, finds and ends the share partitions of this broker. It is a `LeadershipListener` of replicas, too."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        replicas: Replicas,
        persister: Persister,
        locks: TimerWheel,
        long_work: LongWork,
        dead_letters: DeadLetterQueue,
    ) -> None:
        self.clock = world.session_clock
        #: Of the same clock: the deadlines of acquisition locks and of waiting fetches.
        self.wheel = locks
        self.wakeups = Wakeups(world.clock)
        self.persister = persister
        self.dead_letters: DeadLetters = dead_letters
        self.counts = dead_letters.counts
        self.sessions = ShareSessions(
            lambda: configs["group.share.max.share.sessions"], self.release_session, self._group_unused
        )
        self.group_settings = GroupSettingsView(configs, metadata)
        self.settings_of: Callable[[str], GroupSettings] = self.group_settings.of
        self._replicas = replicas
        replicas.listeners.append(self)
        self._long_work = long_work
        self._led: dict[TopicPartition, dict[str, LedSharePartition]] = {}

    # -- Share partitions --------------------------------------------------------------------------------------------

    def find(self, group_id: str, at: TopicPartition) -> LedSharePartition:
        """The share partition, which a fetch must have loaded.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER. It was loaded in an earlier epoch, by this broker or another, and all locks are gone.
        """
        led = self._led.get(at, {}).get(group_id)
        if led is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return led

    def led(self) -> list[LedSharePartition]:
        return [led for groups in self._led.values() for led in groups.values()]

    def load(self, group_id: str, topic: str, at: TopicPartition, context: RequestContext) -> LedSharePartition:
        """The share partition, loaded or loading.

        Raises:
            KafkaError: this broker does not lead the partition.
        """
        partition = self._replicas.lookup(topic, at.topic_id, at.partition)
        partition.local_log(-1, require_leader=True)
        led = self._led.get(at, {}).get(group_id)
        if led is None or led.leader_epoch != partition.leader_epoch or led.partition is not partition:
            if led is not None:
                led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            led = LedSharePartition(SharePartitionKey(group_id, *at), partition, self)
            self._led.setdefault(at, {})[group_id] = led

            def reset(log: Log, policy: str, found: Found) -> None:
                self._reset(context, log, policy, found)

            led.load(reset)
        return led

    def _reset(self, context: RequestContext, log: Log, policy: str, found: Found) -> None:
        """The first offset of a group, by share.auto.offset.reset."""
        if not policy.startswith(BY_DURATION):
            found(log.log_start_offset if policy == EARLIEST else log.high_watermark)
            return
        since_ms = self.clock.wall_ms() - duration_ms(policy.removeprefix(BY_DURATION))
        search = lookup.offset_for_timestamp(log, max(0, since_ms), Turn())

        def then(first: tuple[int, int, int] | None) -> None:
            found(log.high_watermark if first is None else min(first[1], log.high_watermark))

        try:
            searched = self._long_work.run(context, search, then, is_search=False)
        except (KafkaError, StorageFailure, CorruptFile):
            found(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            return
        if isinstance(searched, Reply):
            searched.when_done(lambda outcome: found(outcome) if isinstance(outcome, KafkaError) else None)

    def ended(self, led: LedSharePartition) -> None:
        at = TopicPartition(led.key.topic_id, led.key.partition)
        groups = self._led.get(at, {})
        if groups.get(led.key.group_id) is led:
            del groups[led.key.group_id]
            if not groups:
                del self._led[at]

    # -- Sessions ----------------------------------------------------------------------------------------------------

    def release_session(self, session: ShareSession) -> None:
        """The session has ended: what its member holds of its partitions is released."""
        group_id, member_id = session.key
        for at in session.partitions:
            led = self._led.get(at, {}).get(group_id)
            if led is not None:
                led.release(member_id)

    def _group_unused(self, group_id: str) -> None:
        self.counts.forget(group_id)
        for groups in list(self._led.values()):
            led = groups.get(group_id)
            if led is not None:
                led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    # -- Leadership --------------------------------------------------------------------------------------------------

    def on_leader(self, partition: Partition) -> None:
        """A new leader epoch begins; share partitions of an older one end."""
        self.on_resigned(partition)

    def on_resigned(self, partition: Partition) -> None:
        for led in list(self._led.get(TopicPartition(partition.topic_id, partition.index), {}).values()):
            led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        """The node stops: nothing is acquired and nothing written any more."""
        for groups in list(self._led.values()):
            for led in list(groups.values()):
                led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
