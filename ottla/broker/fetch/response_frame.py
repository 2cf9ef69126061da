"""The frame of a Fetch's response, packed from what is sent (`handler.settle`): no struct of a message is made.

It has topic ids and compact lengths (v13 and up). A response for one partition, which is the usual one, is one Struct.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from ottla.broker.fetch.handler import Sent
from ottla.broker.replication.fetch_requests import LAST_TAGS
from ottla.protocol.primitives import Pieces, uvarint
from ottla.server.transport import JOIN_BYTES

# Size, correlation id, no tags; throttle time, error, session id, topics plus one.
HEAD = Struct(">iixihiB")
# Index, error, high watermark, last stable offset, log start offset, aborted transactions plus one, preferred replica.
PARTITION = Struct(">ihqqqBi")
ONE_PARTITION = Struct(">iixihiB16sBihqqqBi")
pack_one, pack_partition = ONE_PARTITION.pack, PARTITION.pack
#: The same fields, and the length of the records plus one, as a varint of two bytes.
ONE_USUAL = Struct(ONE_PARTITION.format + "H")
pack_usual = ONE_USUAL.pack
USUAL_FRAME_BYTES = ONE_USUAL.size + len(LAST_TAGS)
#: The size of the frame for one partition, without the records and their length.
ONE_FRAME_BYTES = ONE_PARTITION.size + len(LAST_TAGS)
NO_TAG = b"\0"
NO_RECORDS = b"\1\0"
NO_PARTS: Pieces = []
#: From this size on the varint of the length of records, plus one, takes three bytes.
USUAL_BYTES_MAX = (1 << 14) - 1


def response_frame(
    correlation_id: int, session_id: int, sent: Sequence[Sent], aborted: int
) -> tuple[bytes, Pieces, int] | None:
    """Return the frame's head, its other pieces, and the bytes of all; None if a row has a struct, which needs the codec.

    `aborted`: 0 for null, 1 for an empty list.
    """
    if len(sent) != 1:
        return _several(correlation_id, session_id, sent, aborted)
    wanted, high_watermark, last_stable_offset, log_start_offset, records, data = sent[0]
    if data is not None:
        return None
    topic_id, index = wanted.topic_id, wanted.index
    size = len(records)
    if 127 <= size < USUAL_BYTES_MAX:
        more = size + 1
        nbytes = USUAL_FRAME_BYTES + size
        head = pack_usual(
            nbytes - 4, correlation_id, 0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, last_stable_offset,
            log_start_offset, aborted, -1, (more & 127 | 128) << 8 | more >> 7,
        )  # fmt: skip
        return b"".join((head, records, LAST_TAGS)), NO_PARTS, nbytes
    length = uvarint(size + 1)
    nbytes = ONE_FRAME_BYTES + len(length) + size
    head = pack_one(
        nbytes - 4, correlation_id, 0, 0, session_id, 2, topic_id, 2, index, 0, high_watermark, last_stable_offset,
        log_start_offset, aborted, -1,
    )  # fmt: skip
    if nbytes > JOIN_BYTES:
        return head + length, [records, LAST_TAGS], nbytes
    return b"".join((head, length, records, LAST_TAGS)), NO_PARTS, nbytes


def _several(
    correlation_id: int, session_id: int, sent: Sequence[Sent], aborted: int
) -> tuple[bytes, Pieces, int] | None:
    """Return the response to several partitions; those of one topic that follow each other are one element."""
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
