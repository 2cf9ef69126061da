"""The hot path's codecs must not become slow unnoticed.

Measured on a shared 2-core machine, CPython 3.11, us: Produce v9 decode 1.5 and v13 1.3, Produce response encode 0.6,
Fetch v17 request decode 1.2, Fetch v12 and v17 response encode 1.1. The bounds leave a slow machine room.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from timeit import repeat
from typing import Any

import pytest

from ottla.protocol.compile import decoder, encode, encoder
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

BOUND_US = 10.0
BATCH = bytes(170)
UUID = bytes(range(16))

PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    topic_data=[
        TopicProduceData(name="topic", topic_id=UUID, partition_data=[PartitionProduceData(index=3, records=BATCH)])
    ],
)
PRODUCED = ProduceResponse(
    responses=[
        TopicProduceResponse(
            name="topic", topic_id=UUID, partition_responses=[PartitionProduceResponse(index=3, base_offset=100)]
        )
    ]
)
FETCH = FetchRequest(
    max_wait_ms=500,
    session_id=7,
    session_epoch=1,
    topics=[FetchTopic(topic="topic", topic_id=UUID, partitions=[FetchPartition(partition=3, fetch_offset=100)])],
)
FETCHED = FetchResponse(
    session_id=7,
    responses=[
        FetchableTopicResponse(
            topic="topic",
            topic_id=UUID,
            partitions=[PartitionData(partition_index=3, high_watermark=100, aborted_transactions=None, records=BATCH)],
        )
    ],
)


def best_us(call: Callable[[], Any]) -> float:
    return min(repeat(call, number=2_000, repeat=7, timer=time.thread_time)) / 2_000 * 1e6


@pytest.mark.parametrize(("request_", "version"), [(PRODUCE, 9), (PRODUCE, 13), (FETCH, 12), (FETCH, 17)])
def test_request_is_decoded_in_microseconds(request_: Any, version: int) -> None:
    data = memoryview(encode(request_, version))
    decode, end = decoder(type(request_), version), len(data)
    assert best_us(lambda: decode(data, 0, end)) < BOUND_US


@pytest.mark.parametrize(("response", "version"), [(PRODUCED, 9), (PRODUCED, 13), (FETCHED, 12), (FETCHED, 17)])
def test_response_is_encoded_in_microseconds(response: Any, version: int) -> None:
    write = encoder(type(response), version)
    assert best_us(lambda: write(response, [])) < BOUND_US
