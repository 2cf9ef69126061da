"""The bytes of the positions in a repeated Fetch from v13 on, and of its response: with topic ids and compact lengths.

A response for one partition, which is the usual one, is one Struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.broker.fetch.response import Sent
from ottla.protocol.primitives import Pieces, uvarint

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
NO_TAG = b"\0"
NO_RECORDS = b"\1\0"
#: Of the partition, the topic and the response.
LAST_TAGS = bytes(3)
EMPTY = b"\1" + LAST_TAGS


def response_frame(
    correlation_id: int, session_id: int, sent: Sequence[Sent], aborted: int
) -> tuple[bytes, Pieces, int] | None:
    """Returns the frame's head, its other pieces, and the bytes of all; None if a row has a struct, which needs the codec.

    `aborted`: 0 for null, 1 for an empty list.
    """
    if len(sent) != 1:
        return _several(correlation_id, session_id, sent, aborted)
    wanted, high_watermark, last_stable_offset, log_start_offset, records, data = sent[0]
    if data is not None:
        return None
    topic_id, index = wanted.topic_id, wanted.index
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


def _several(
    correlation_id: int, session_id: int, sent: Sequence[Sent], aborted: int
) -> tuple[bytes, Pieces, int] | None:
    """Partitions of one topic that follow each other are one element."""
    pieces: Pieces = []
    topics = count = 0
    last, place = b"", 0
    for wanted, high_watermark, last_stable_offset, log_start_offset, records, data in sent:
        if data is not None:
            return None
        topic_id, index = wanted.topic_id, wanted.index
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
