"""The bytes of a Fetch from v13 on that a client repeats, and those of its response: both with topic ids and compact lengths.

The codecs make the request's but for its topics. A response of one partition, which is the usual one, is one Struct; so are the topics
of a follower's request for one partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import TypeAlias

from ottla.protocol.api import ApiKey
from ottla.protocol.compile import encode
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.headers import encode_request_header
from ottla.protocol.messages.fetch import FetchRequest, PartitionData
from ottla.protocol.primitives import Buffer, Pieces, read_uvarint_rest, uvarint
from ottla.protocol.schema import maker

#: A session epoch that no other field of a request has.
MARK = 0x7A6B5C4D
#: Topic id, and its partitions plus one.
read_topic = Struct(">16sB").unpack_from
TOPIC_BYTES = 17
#: Index, leader epoch, fetch offset, last fetched epoch, log start offset, partition_max_bytes, tags.
read_partition = Struct(">iiqiqiB").unpack_from
PARTITION_BYTES = 33
# Size, correlation id, no tags; throttle time, error, session id, topics plus one.
HEAD = Struct(">iixihiB")
# Index, error, high watermark, last stable offset, log start offset, aborted transactions plus one, preferred replica.
PARTITION = Struct(">ihqqqBi")
ONE_PARTITION = Struct(">iixihiB16sBihqqqBi")
pack_one, pack_partition = ONE_PARTITION.pack, PARTITION.pack
# Session epoch, topics plus one, topic id, partitions plus one, then as `read_partition`, and no tags of partition and topic.
pack_position = Struct(">iB16sBiiqiqixx").pack
# As ONE_PARTITION, without the size.
ONE_ANSWER = Struct(">iBihiB16sBihqqqBi")
new_partition_data = maker(PartitionData)
NO_TAG = b"\0"
NO_RECORDS = b"\1\0"
#: Of the partition, the topic and the response.
LAST_TAGS = bytes(3)
LAST_TAGS_PIECE: Pieces = [LAST_TAGS]
EMPTY = b"\1" + LAST_TAGS

#: Topic id, index, high watermark, last stable offset, log start offset, records.
Answered: TypeAlias = tuple[bytes, int, int, int, int, Buffer]


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


def response_frame(
    correlation_id: int, session_id: int, answered: Sequence[Answered], aborted: int
) -> tuple[bytes, Pieces, int]:
    """Returns the frame's head, its other pieces, and the bytes of all. `aborted`: 0 for null, 1 for an empty list."""
    if len(answered) != 1:
        return _several(correlation_id, session_id, answered, aborted)
    topic_id, index, high_watermark, last_stable_offset, log_start_offset, records = answered[0]
    size = len(records)
    if not size:
        nbytes = ONE_PARTITION.size + 4
        head = pack_one(
            nbytes - 4, correlation_id, 0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, last_stable_offset,
            log_start_offset, aborted, -1,
        )  # fmt: skip
        return head + EMPTY, [], nbytes
    length = uvarint(size + 1)
    nbytes = ONE_PARTITION.size + len(length) + size + 3
    head = pack_one(
        nbytes - 4, correlation_id, 0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, last_stable_offset,
        log_start_offset, aborted, -1,
    )  # fmt: skip
    return head + length, [records, LAST_TAGS], nbytes


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


def _several(
    correlation_id: int, session_id: int, answered: Sequence[Answered], aborted: int
) -> tuple[bytes, Pieces, int]:
    """Partitions of one topic that follow each other are one element."""
    pieces: Pieces = []
    topics = count = 0
    last, place = b"", 0
    for topic_id, index, high_watermark, last_stable_offset, log_start_offset, records in answered:
        if topic_id != last:
            if topics:
                pieces[place] = last + uvarint(count + 1)
                pieces.append(NO_TAG)
            topics += 1
            last, place, count = topic_id, len(pieces), 0
            pieces.append(b"")
        count += 1
        fields = pack_partition(index, 0, high_watermark, last_stable_offset, log_start_offset, aborted, -1)
        if records:
            pieces += (fields + uvarint(len(records) + 1), records, NO_TAG)
        else:
            pieces.append(fields + NO_RECORDS)
    if topics:
        pieces[place] = last + uvarint(count + 1)
        pieces.append(NO_TAG)
    pieces.append(NO_TAG)
    number = uvarint(topics + 1)
    nbytes = HEAD.size - 1 + len(number) + sum(map(len, pieces))
    head = HEAD.pack(nbytes - 4, correlation_id, 0, 0, session_id, 0)[:-1] + number
    return head, pieces, nbytes
