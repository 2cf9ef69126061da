"""Reading of logs: the records in responses to a consumer's Fetches, the records of one replica, and the ends of epochs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient, Leaders, NoConnection
from ottla.client.errors import check
from ottla.client.partitions import TopicPartition, by_topic
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.protocol.records.batch import BatchView, iter_batches
from ottla.protocol.records.control import end_txn_marker
from ottla.protocol.records.record import Record, iter_records, skip_records

#: One turn of the event loop decodes, or skips, this many records: it takes 5 to 10 ms.
DECODED_AT_ONCE = 5_000
SKIPPED_AT_ONCE = 50_000


class Batches(NamedTuple):
    """Batches of one partition that were fetched at `position`: the first may have records before it.

    `next_offset` is the position after them and after markers and records of aborted transactions, which are not returned.
    There may be no batch at all. `topic_id` is the id of the topic that was read, `epoch` the leader epoch of the last batch
    before `next_offset`.
    """

    topic: str
    partition: int
    position: int
    batches: list[BatchView]
    next_offset: int
    topic_id: bytes
    epoch: int


class Recreated(NamedTuple):
    """A topic was deleted and created again while it was read.

    Reading continues at `begin`; None: the new topic lacks the partition.

    `unread` counts the offsets of the deleted topic from `position` up to the end that its leader had named last.
    """

    topic: str
    partition: int
    position: int
    unread: int
    begin: int | None


def recreated_texts(rows: list[Recreated]) -> list[str]:
    """Return a sentence for each topic, and clear the list.

    It says where reading continues, which offsets were not read, and which partitions are gone.
    """
    by_topic: dict[str, list[Recreated]] = {}
    for row in rows:
        by_topic.setdefault(row.topic, []).append(row)
    rows.clear()
    said = []
    for topic, found in by_topic.items():
        text = f"topic {topic} was deleted and created again: its records are read from the first one on"
        if unread := sum(row.unread for row in found):
            text += f"; {unread} offsets of the former topic were not read"
        if gone := sorted(row.partition for row in found if row.begin is None):
            text += f"; partition {', '.join(map(str, gone))} is not there any more"
        said.append(text)
    return said


class At(NamedTuple):
    """The place where a partition is read. A response to a Fetch from there is used only if the consumer still reads there."""

    topic_id: bytes
    offset: int


class Trouble(NamedTuple):
    """A partition that could not be read at a place, because of an error code or a malformed batch."""

    node: int
    place: TopicPartition
    at: At
    code: int
    fault: KafkaError | None = None


class ReadRecords(NamedTuple):
    """The part of a response for one partition: the batches to return, the position after them and after what is left out, the
    leader epoch of the last batch, and why the next batch cannot be read.
    """

    batches: list[BatchView]
    next_offset: int
    epoch: int
    fault: KafkaError | None = None


def batches_of(part: PartitionData, position: int, epoch: int, end: int | None) -> ReadRecords:
    """Return the batches up to `end`, and before the first one that is malformed or whose CRC is wrong (check.crcs of Java's
    consumers). Control batches are left out, and those of aborted transactions, which the response names by their producers.
    """
    aborted = sorted((row.first_offset, row.producer_id) for row in part.aborted_transactions or ())
    open_aborted: set[int] = set()
    taken: list[BatchView] = []
    data = part.records or b""
    assert not isinstance(data, list), "what was decoded is in one buffer"
    try:
        for batch in iter_batches(data):
            batch.check_crc()
            if end is not None and batch.base_offset >= end:
                position = max(position, end)
                break
            while aborted and aborted[0][0] <= batch.last_offset:
                open_aborted.add(aborted.pop(0)[1])
            if batch.is_control:
                marker = end_txn_marker(batch)
                if marker is not None and not marker.committed:
                    open_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in open_aborted):
                taken.append(batch)
            position, epoch = max(position, batch.next_offset), batch.partition_leader_epoch
    except KafkaError as fault:
        return ReadRecords(taken, position, epoch, fault)
    return ReadRecords(taken, position, epoch)


async def records_between(batch: BatchView, first: int, end: int | None, bytes_max: int | None = None) -> list[Record]:
    """Return the records of a batch from `first` on, and before `end`.

    Raises:
        KafkaError: the batch is malformed, as far as it was read, or has more than `bytes_max` when it is decompressed.
    """
    data = batch.expand(bytes_max)
    skipped, at = 0, 0
    if (
        batch.count == batch.last_offset_delta + 1
    ):  # the batch has all offsets, so the number of records before `first` is known
        wanted = min(max(0, first - batch.base_offset), batch.count)
        while skipped < wanted:
            step = min(SKIPPED_AT_ONCE, wanted - skipped)
            at = skip_records(data, step, at)
            skipped += step
            await asyncio.sleep(0)
    found: list[Record] = []
    left = iter_records(
        data, batch.count - skipped, batch.base_offset, batch.base_timestamp, batch.append_time, start=at
    )
    for number, record in enumerate(left, 1):
        if end is not None and record.offset >= end:
            break
        if record.offset >= first:
            found.append(record)
        if not number % DECODED_AT_ONCE:
            await asyncio.sleep(0)
    return found


#: Kafka's "debugging replica": followers too answer a Fetch with this replica id, up to the end of their logs.
DEBUGGING_REPLICA = -2


async def fetch_from_replica(
    cluster: ClusterClient,
    node: int,
    offsets: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
    *,
    bytes_max: int,
    wait_ms: int,
) -> dict[TopicPartition, PartitionData]:
    """Return the batches that the broker has of each partition, from these offsets on.

    Raises:
        CommandFailed: the broker cannot be reached, or has no such replica.
    """
    topics: dict[str, FetchTopic] = {}
    for (name, index), offset in sorted(offsets.items()):
        topic = topics.setdefault(name, FetchTopic(name, topic_ids[name], []))
        topic.partitions.append(FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=bytes_max))
    request = FetchRequest(
        replica_state=ReplicaState(DEBUGGING_REPLICA),
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=bytes_max * max(1, len(offsets)),
        topics=list(topics.values()),
    )
    cluster.doing = f"reading the replicas of broker {node}"
    response: FetchResponse = await cluster.request(request, node, timeout_ms=wait_ms + ATTEMPT_MS_MAX)
    check(f"reading from broker {node}", response.error_code)
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    found = {
        (topic.topic or names[topic.topic_id], part.partition_index): part
        for topic in response.responses
        for part in topic.partitions
    }
    for (name, index), part in found.items():
        check(f"partition {name}-{index} at broker {node}", part.error_code)
    return found


#: The replica id of a client.
CONSUMER = -1


class EpochEnd(NamedTuple):
    """The end of an epoch in a leader's log: the largest epoch up to the one that was asked for, -1 if there is none so old."""

    error_code: int
    epoch: int
    end_offset: int


async def epoch_ends(
    cluster: ClusterClient, leaders: Leaders, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd]:
    """Ask the leaders where these epochs end in their logs: records that were read behind that end are lost (KIP-320).

    They are asked with the leader epochs that are known here, so that a broker which does not lead any more, or not yet,
    answers with an error. Partitions without a leader are left out. So are those of a leader that does not answer, and that
    leader is forgotten.
    """
    found: dict[TopicPartition, EpochEnd] = {}
    for node, places in leaders.by_node(epochs).items():
        rows = [
            OffsetForLeaderTopic(
                name,
                [
                    OffsetForLeaderPartition(index, leaders.of((name, index)).epoch, epochs[name, index])
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(places).items()
        ]
        try:
            response: OffsetForLeaderEpochResponse = await cluster.request(
                OffsetForLeaderEpochRequest(CONSUMER, rows), node
            )
        except NoConnection:
            leaders.forget(node)
            continue
        for topic in response.topics:
            for row in topic.partitions:
                found[topic.topic, row.partition] = EpochEnd(row.error_code, row.leader_epoch, row.end_offset)
    return found
