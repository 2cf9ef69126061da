"""The share partitions that this broker leads, by partition and group, and the share sessions of their members.

A share partition is loaded by the first fetch of it. It is forgotten when this broker stops to lead the partition or leads it in
another epoch, when the share coordinator refuses its leader, and when the last session of its group at this broker has ended
with its connection.

The acknowledgements of one ShareFetch or ShareAcknowledge are checked, decided by each share partition, and written. A partition whose
batches are out of order, overlap, or have types that the request's version does not know is refused as a whole, and nothing of it is
changed; the other partitions are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ottla.broker.configs import BrokerConfigs
from ottla.broker.long_work import LongWork
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.replication.partition import Partition
from ottla.broker.replication.replicas import Replicas
from ottla.broker.replication.wakeups import Wakeups
from ottla.broker.share.dead_letter_queue import DeadLetterQueue
from ottla.broker.share.group_settings import BY_DURATION, EARLIEST, GroupSettingsView, ShareGroupSettings, duration_ms
from ottla.broker.share.in_flight import AcknowledgeType
from ottla.broker.share.led_partition import DeadLetters, LedSharePartition
from ottla.broker.share.remote_records import TieredReads
from ottla.broker.share.share_partition import Acknowledgement
from ottla.broker.share.share_session import SessionKey, ShareSession, ShareSessions, TopicIdPartition
from ottla.broker.share.share_state import Persister, SharePartitionKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.shared_structs import AcknowledgementBatch, AcknowledgeTopic
from ottla.protocol.work import Turn
from ottla.server.clock import TimerWheel
from ottla.server.network.context import Answer, Reply, RequestContext
from ottla.server.world import World
from ottla.storage.errors import CorruptFile, StorageFailure
from ottla.storage.log import lookup
from ottla.storage.log.log import Log

Found = Callable[[int | KafkaError], None]
#: The result of each partition's acknowledgements.
Outcomes = dict[TopicIdPartition, KafkaError | None]
MayRead = Callable[[str], bool]


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
        #: The deadlines of acquisition locks and of waiting fetches, on the same clock.
        self.wheel = locks
        self.wakeups = Wakeups(world.clock)
        self.persister = persister
        self.dead_letters: DeadLetters = dead_letters
        self.counts = dead_letters.counts
        self.remote_reads: TieredReads | None = None
        self.sessions = ShareSessions(
            lambda: configs["group.share.max.share.sessions"], self.release_session, self._group_unused
        )
        self.group_settings = GroupSettingsView(configs, metadata)
        self.settings_of: Callable[[str], ShareGroupSettings] = self.group_settings.of
        self._metadata = metadata
        self._replicas = replicas
        replicas.listeners.append(self)
        self._long_work = long_work
        self._led: dict[TopicIdPartition, dict[str, LedSharePartition]] = {}

    # -- Share partitions --------------------------------------------------------------------------------------------

    def find(self, group_id: str, at: TopicIdPartition) -> LedSharePartition:
        """Return the share partition, which a fetch must have loaded.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER. It was loaded in an earlier epoch, by this broker or another, and all locks are gone.
        """
        led = self._led.get(at, {}).get(group_id)
        if led is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return led

    def led(self) -> list[LedSharePartition]:
        return [led for groups in self._led.values() for led in groups.values()]

    def load(self, group_id: str, topic: str, at: TopicIdPartition, context: RequestContext) -> LedSharePartition:
        """Return the share partition, loaded or loading.

        Raises:
            KafkaError: this broker does not lead the partition.
        """
        partition = self._replicas.lookup(topic, at.topic_id, at.partition)
        partition.local_log(-1, require_leader=True)
        led = self._led.get(at, {}).get(group_id)
        if led is None or led.leader_epoch != partition.leader_epoch or led.partition is not partition:
            if led is not None:
                self._end([led])
            led = LedSharePartition(SharePartitionKey(group_id, *at), partition, self)
            self._led.setdefault(at, {})[group_id] = led
            led.load(partial(self._reset, context, partition))
        return led

    def _reset(self, context: RequestContext, partition: Partition, log: Log, policy: str, found: Found) -> None:
        """Find the first offset of a group by share.auto.offset.reset."""
        if not policy.startswith(BY_DURATION):
            found(log.log_start_offset if policy == EARLIEST else log.high_watermark)
            return
        since_ms = max(0, self.clock.wall_ms() - duration_ms(policy.removeprefix(BY_DURATION)))
        if self.remote_reads is None or log.log_start_offset >= log.local_start_offset:
            self._search(context, log, since_ms, found)
            return

        def then(first: tuple[int, int, int] | KafkaError | None) -> None:
            if first is None:
                self._search(context, log, since_ms, found)
            else:
                found(first if isinstance(first, KafkaError) else first[1])

        work = self.remote_reads.search(partition, log, since_ms)
        self.remote_reads.begin(partition, work, then)

    def _search(self, context: RequestContext, log: Log, since_ms: int, found: Found) -> None:
        """Find the first offset of a group by time, on the disk."""
        search = lookup.offset_for_timestamp(log, since_ms, Turn())

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
        at = TopicIdPartition(led.key.topic_id, led.key.partition)
        groups = self._led.get(at, {})
        if groups.get(led.key.group_id) is led:
            del groups[led.key.group_id]
            if not groups:
                del self._led[at]

    # -- Acknowledgements --------------------------------------------------------------------------------------------

    def acknowledge(
        self,
        member: SessionKey,
        topics: Sequence[AcknowledgeTopic],
        highest: AcknowledgeType,
        may_read: MayRead,
        *,
        is_renew: bool,
    ) -> Answer[Outcomes]:
        """Return the outcomes, once all of them are written. A partition without acknowledgements is left out unless it has an error."""
        outcomes: Outcomes = {}
        waiting: set[TopicIdPartition] = set()
        reply: Reply[Outcomes] = Reply()

        def written(at: TopicIdPartition, error: KafkaError | None) -> None:
            outcomes[at] = error
            waiting.discard(at)
            if is_complete and not waiting and not reply.done:
                reply.complete(outcomes)

        is_complete = False
        for topic in topics:
            for partition in topic.partitions:
                at = TopicIdPartition(topic.topic_id, partition.partition_index)
                try:
                    name = self._metadata.topic_name(at.topic_id)
                    if name is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
                    acknowledgements = valid(partition.acknowledgement_batches, highest, is_renew=is_renew)
                    if not may_read(name):
                        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if self._metadata.partition(name, at.partition) is None:
                        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    if acknowledgements:
                        led = self.find(member.group_id, at)
                        waiting.add(at)
                        led.acknowledge(member.member_id, acknowledgements, partial(written, at))
                except KafkaError as error:
                    waiting.discard(at)
                    outcomes[at] = error
        is_complete = True
        return reply if waiting else outcomes

    # -- Sessions ----------------------------------------------------------------------------------------------------

    def release_session(self, session: ShareSession) -> None:
        """Release the records that the session's member holds, because the session has ended."""
        group_id, member_id = session.key
        for at in session.partitions:
            led = self._led.get(at, {}).get(group_id)
            if led is not None:
                led.release(member_id)

    def _group_unused(self, group_id: str) -> None:
        self.counts.forget(group_id)
        self._end(groups[group_id] for groups in self._led.values() if group_id in groups)

    # -- Leadership --------------------------------------------------------------------------------------------------

    def on_leader(self, partition: Partition) -> None:
        """A new leader epoch begins; share partitions of an older one end."""
        self.on_resigned(partition)

    def on_resigned(self, partition: Partition) -> None:
        self._end(self._led.get(TopicIdPartition(partition.topic_id, partition.index), {}).values())

    def _end(self, led: Iterable[LedSharePartition]) -> None:
        for each in list(led):
            each.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def close(self) -> None:
        """The node stops: nothing is acquired and nothing written any more."""
        self._end(self.led())


def valid(
    batches: Iterable[AcknowledgementBatch], highest: AcknowledgeType, *, is_renew: bool
) -> list[Acknowledgement]:
    """Return the acknowledgements of batches in order of their offsets.

    Raises:
        KafkaError INVALID_REQUEST: batches overlap, or have types above `highest`, or renewals that are not allowed.
    """
    last = -1
    acknowledgements = []
    for batch in batches:
        types = batch.acknowledge_types
        count = batch.last_offset - batch.first_offset + 1
        if (
            count < 1
            or batch.first_offset < last
            or len(types) not in (1, count)
            or not all(AcknowledgeType.GAP <= kind <= highest for kind in types)
            or (AcknowledgeType.RENEW in types and not is_renew)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        last = batch.last_offset
        acknowledgements.append(Acknowledgement(batch.first_offset, batch.last_offset, types))
    return acknowledgements
