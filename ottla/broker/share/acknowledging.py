"""The acknowledgements of one ShareFetch or ShareAcknowledge: they are checked, decided by each share partition, and written.

A partition whose batches are out of order, overlap, or have types that the request's version does not know is refused as a whole,
and nothing of it is changed; the other partitions are not concerned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.share.leaders import ShareLeaders
from ottla.broker.share.record_state import AcknowledgeType
from ottla.broker.share.share_partition import Acknowledgement
from ottla.broker.share.share_session import SessionKey, TopicPartition
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.network.reply import Answer, Reply

#: What became of each partition's acknowledgements.
Outcomes = dict[TopicPartition, KafkaError | None]
MayRead = Callable[[str], bool]


class Batch(Protocol):
    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> list[int]: ...


class PartitionOf(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def acknowledgement_batches(self) -> Sequence[Batch]: ...


class TopicOf(Protocol):
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partitions(self) -> Sequence[PartitionOf]: ...


def valid(batches: Iterable[Batch], highest: AcknowledgeType, *, is_renew: bool) -> list[Acknowledgement]:
    """Raises KafkaError INVALID_REQUEST."""
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


def acknowledge(
    leaders: ShareLeaders,
    metadata: MetadataCache,
    member: SessionKey,
    topics: Sequence[TopicOf],
    highest: AcknowledgeType,
    may_read: MayRead,
    *,
    is_renew: bool,
) -> Answer[Outcomes]:
    """The outcomes, once all of them are written. A partition without acknowledgements is left out unless it has an error."""
    outcomes: Outcomes = {}
    waiting: set[TopicPartition] = set()
    reply: Reply[Outcomes] = Reply()

    def written(at: TopicPartition, error: KafkaError | None) -> None:
        outcomes[at] = error
        waiting.discard(at)
        if is_complete and not waiting and not reply.done:
            reply.complete(outcomes)

    is_complete = False
    for topic in topics:
        for partition in topic.partitions:
            at = TopicPartition(topic.topic_id, partition.partition_index)
            try:
                _check_known(metadata, at)
                acknowledgements = valid(partition.acknowledgement_batches, highest, is_renew=is_renew)
                _check_readable(metadata, at, may_read)
                if acknowledgements:
                    led = leaders.find(member.group_id, at)
                    waiting.add(at)
                    led.acknowledge(member.member_id, acknowledgements, partial(written, at))
            except KafkaError as error:
                waiting.discard(at)
                outcomes[at] = error
    is_complete = True
    return reply if waiting else outcomes


def _check_known(metadata: MetadataCache, at: TopicPartition) -> None:
    if metadata.topic_name(at.topic_id) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)


def _check_readable(metadata: MetadataCache, at: TopicPartition, may_read: MayRead) -> None:
    name = metadata.topic_name(at.topic_id)
    assert name is not None
    if not may_read(name):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if metadata.partition(name, at.partition) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
