"""The bytes of a Produce with one partition that do not change from one request of a producer to its next, and of its response.

The codecs make them, from a request and a response with known values in the fields that do change.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct

from ottla.protocol.api import ApiKey
from ottla.protocol.compile import encode
from ottla.protocol.headers import response_header_version
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

#: A base offset that no other field of a response has.
MARK = 0x7A6B_5C4D_3E2F_1A0B


def body_before_index(request: ProduceRequest, topic: TopicProduceData, version: int) -> bytes:
    """Returns the body of a request up to the index of its partition, which is followed by its records."""
    topic = TopicProduceData(
        name=topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(index=0, records=b"")]
    )
    body = encode(ProduceRequest(acks=request.acks, timeout_ms=request.timeout_ms, topic_data=[topic]), version)
    # The index, and the length of no records: four bytes, or one, and then an empty section of tags on three levels.
    return body[:-8]


def response_form(topic: TopicProduceData, version: int) -> tuple[Callable[..., bytes], int, bytes, bytes]:
    """Returns the packer of a whole response frame, its size field, and the bytes before the index and after the offsets."""
    partition = PartitionProduceResponse(base_offset=MARK)
    answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[partition])
    body = encode(ProduceResponse(responses=[answered]), version)
    at = body.index(MARK.to_bytes(8, "big"))
    head, tail = body[: at - 6], body[at + 24 :]
    if response_header_version(ApiKey.PRODUCE, version):
        head = b"\0" + head
    form = Struct(f">ii{len(head)}sihqqq{len(tail)}s")
    return form.pack, form.size - 4, head, tail
