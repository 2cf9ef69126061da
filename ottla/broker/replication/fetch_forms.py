"""The bytes of a Fetch from v13 on that a client repeats, and of the response that it gets: with topic ids and compact lengths.

The codecs make the request's bytes but for its topics. The topics of a follower's request for one partition are one Struct, and so is
the response for one partition: both are the usual ones. The leader's side is broker/fetch/frames.py.
"""

from __future__ import annotations

from struct import Struct

from ottla.protocol.api import ApiKey
from ottla.protocol.compile import encode
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.fetch import FetchRequest, PartitionData
from ottla.protocol.primitives import Buffer, read_uvarint_rest
from ottla.protocol.schema import maker

#: A session epoch that no other field of a request has.
MARK = 0x7A6B5C4D
# Session epoch, topics plus one, topic id, partitions plus one; index, leader epoch, fetch offset, last fetched epoch, log start
# offset, partition_max_bytes; no tags of partition and topic.
pack_position = Struct(">iB16sBiiqiqixx").pack
# Correlation id, tags; throttle time, error, session id, topics plus one; topic id, partitions plus one; index, error, high watermark,
# last stable offset, log start offset, aborted transactions plus one, preferred replica.
ONE_ANSWER = Struct(">iBihiB16sBihqqqBi")
new_partition_data = maker(PartitionData)
#: Of the partition, the topic and the response.
LAST_TAGS = bytes(3)


def request_form(request: FetchRequest, version: int, client_id: str | None) -> tuple[bytes, bytes]:
    """Returns the bytes of a request's frame between correlation id and session epoch, and those after its last topic."""
    bare = FetchRequest(
        replica_id=request.replica_id,
        replica_state=request.replica_state,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        isolation_level=request.isolation_level,
        session_id=request.session_id,
        session_epoch=MARK,
        rack_id=request.rack_id,
    )
    body = encode(bare, version)
    at = body.index(MARK.to_bytes(4, "big"))
    return encode_request_header(ApiKey.FETCH, version, 0, client_id)[8:] + body[:at], body[at + 5 :]


def one_answer(correlation_id: int, frame: Buffer, pos: int, end: int) -> tuple[int, bytes, PartitionData] | None:
    """Returns session id, topic id and partition of a response that has one partition and no error; None for every other."""
    at = pos + ONE_ANSWER.size
    if at >= end:
        return None
    (
        correlated, header_tags, _, error, session_id, topics, topic_id, partitions, index, code, high_watermark,
        last_stable_offset, log_start_offset, aborted, preferred,
    ) = ONE_ANSWER.unpack_from(frame, pos)  # fmt: skip
    if correlated != correlation_id or header_tags or error or topics != 2 or partitions != 2 or code or aborted > 1:
        return None
    size = frame[at]
    at += 1
    if size > 127:
        try:
            size, at = read_uvarint_rest(frame, at, size)
        except (MalformedMessage, IndexError):
            return None
    stop = at + size - 1
    if size == 0 or stop + len(LAST_TAGS) != end or frame[stop:end] != LAST_TAGS:
        return None
    data = new_partition_data(
        partition_index=index,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[] if aborted else None,
        preferred_read_replica=preferred,
        records=memoryview(frame)[at:stop],
    )
    return session_id, topic_id, data
