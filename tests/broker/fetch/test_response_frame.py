"""The frame of a response for one partition has the bytes of its codec, whatever the size of its records."""

from __future__ import annotations

import struct

import pytest

from ottla.broker.fetch.response_frame import USUAL_BYTES_MAX, response_frame
from ottla.broker.fetch.session import FetchPartition
from ottla.protocol.compile import encode
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.server.transport import JOIN_BYTES

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    "size", [0, 1, 126, 127, 128, USUAL_BYTES_MAX - 1, USUAL_BYTES_MAX, USUAL_BYTES_MAX + 1, JOIN_BYTES, 2_100_000]
)
def test_records_of_each_length_of_their_length(size: int) -> None:
    wanted = FetchPartition("orders", TOPIC_ID, 3, 0, 0)
    records = bytes(size)
    found = response_frame(7, 11, [(wanted, 20, 18, 5, memoryview(records), None)], 1)
    assert found is not None
    head, pieces, nbytes = found
    frame = b"".join((head, *pieces))
    data = PartitionData(
        partition_index=3, high_watermark=20, last_stable_offset=18, log_start_offset=5, aborted_transactions=[],
        records=records,
    )  # fmt: skip
    body = encode(
        FetchResponse(session_id=11, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[data])]), 17
    )
    assert frame == struct.pack(">iix", len(body) + 5, 7) + body
    assert nbytes == len(frame)
    assert bool(pieces) == (nbytes > JOIN_BYTES), "what is large leaves in pieces, without a copy"
