"""What a Fetch sends of the rows that were read, and the response's struct: partitions by topic, and new leaders (KIP-951)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.broker.fetch.reader import TOPIC_IDS_VERSION, UNKNOWN_OFFSET, Row, SessionReader
from ottla.broker.fetch.session import FetchPartition
from ottla.broker.metadata_cache import LEADER_MOVED
from ottla.broker.replication.follower_session import INVALID_SESSION_ID
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.shared_structs import LeaderIdAndEpoch
from ottla.protocol.schema import maker

#: From these versions on an error that says so names the leader, and its address (KIP-951).
LEADERS_VERSION, ENDPOINTS_VERSION = 12, 16
NO_BYTES = b""
new_response, new_partition_data = maker(FetchResponse), maker(PartitionData)

#: A partition, high watermark, last stable offset, log start offset, records, and the struct of a row that has one.
Sent: TypeAlias = tuple[FetchPartition, int, int, int, bytes | memoryview, PartitionData | None]


def settle(reader: SessionReader, rows: Sequence[Row], *, is_incremental: bool) -> list[Sent]:
    """Returns what is sent of the rows, and leaves the session as its client will know it (KIP-227).

    An incremental response leaves out unchanged partitions, and those become idle that have nothing to read before they change.
    """
    session, replica_id = reader.session, reader.replica_id
    keeps_session = session.id != INVALID_SESSION_ID
    sent: list[Sent] = []
    for wanted, partition, log, records, data in rows:
        size, is_notice = 0, data is not None
        if log is None or partition is None:
            high_watermark = stable = start = UNKNOWN_OFFSET
            if partition is not None:
                partition.failed_reads += 1
        else:
            high_watermark, start = log.high_watermark, log.log_start_offset
            stable = log.last_stable_offset
            if records is not None:
                size, is_notice = len(records), False
                partition.reads += 1
                if replica_id >= 0:
                    partition.replication_bytes_out += size
                    if partition.leader_throttle is not None:
                        partition.leader_throttle.record(size)
                else:
                    partition.bytes_out += size
        if keeps_session:
            must_include = wanted.must_include(high_watermark, start, has_records=size > 0, has_error=is_notice)
            if size:
                if is_incremental:
                    session.move_to_end(wanted)
            elif not is_notice and log is not None and partition is not None:
                if replica_id >= 0:
                    at_end = wanted.fetch_offset >= log.log_end_offset
                    knows_all = at_end and not partition.next_fetch_may_expand_isr(replica_id)
                else:
                    knows_all = wanted.fetch_offset >= (stable if reader.read_committed else high_watermark)
                if knows_all:
                    session.settle(wanted, partition.watchers)
            if is_incremental and not must_include:
                continue
        else:
            wanted.watch(None)
        sent.append((wanted, high_watermark, stable, start, NO_BYTES if records is None else records, data))
    return sent


def response_of(reader: SessionReader, sent: Sequence[Sent]) -> FetchResponse:
    """Returns the response as a struct. Partitions of one topic that follow each other are one element."""
    response = new_response(session_id=reader.session.id)
    by_id, version = reader.context.api_version >= TOPIC_IDS_VERSION, reader.context.api_version
    topics: list[FetchableTopicResponse] = []
    leaders: set[int] = set()
    last: str | bytes | None = None
    for row in sent:
        wanted = row[0]
        data = _partition_data(row, read_committed=reader.read_committed)
        if data.error_code in LEADER_MOVED and version >= LEADERS_VERSION:
            leader_id, epoch = reader.broker.metadata.leader_and_epoch(wanted.topic, wanted.index)
            data.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=epoch)
            leaders.add(leader_id)
        key: str | bytes = wanted.topic_id if by_id else wanted.topic
        if key != last:
            last = key
            topics.append(FetchableTopicResponse(topic=wanted.topic, topic_id=wanted.topic_id, partitions=[data]))
        else:
            topics[-1].partitions.append(data)
    response.responses = topics
    if leaders and version >= ENDPOINTS_VERSION:
        response.node_endpoints = reader.broker.metadata.node_endpoints(leaders, reader.context)
    return response


def _partition_data(row: Sent, *, read_committed: bool) -> PartitionData:
    wanted, high_watermark, stable, start, records, data = row
    if data is None:
        return new_partition_data(
            partition_index=wanted.index,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=start,
            aborted_transactions=[] if read_committed else None,
            records=records,
        )
    data.high_watermark, data.last_stable_offset, data.log_start_offset = high_watermark, stable, start
    data.records = records
    return data
