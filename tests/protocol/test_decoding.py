"""Hostile bytes: whatever they are, decoders return or raise MalformedMessage, soon and without much memory."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ottla.protocol.compile import decode, decoder, encode
from ottla.protocol.decoding import ELEMENTS_MAX, TOPIC_ELEMENTS_MAX
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.internal_topics.metadata_records import PartitionRecord
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataRequest,
    TopicDataRequest,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.fetch import FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.produce import ProduceRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.primitives import ARRAY_ITEMS_MAX, TAGGED_FIELDS_MAX, uvarint
from tests.effort import examples
from tests.protocol.arbitrary import random_message
from tests.protocol.catalog import every_version

MUTATIONS_PER_VERSION = examples(120)
HOSTILE = (
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\0",
    b"\xff" * 12,
)


def mutated(data: bytes, rng: Random) -> bytes:
    out = bytearray(data or b"\0")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(5):
            case 0:
                out[at : at + 1] = rng.choice(HOSTILE)
            case 1:
                out[at:at] = rng.choice(HOSTILE)
            case 2:
                del out[at:]
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                out[at : at + 1] = rng.randbytes(1)
    return bytes(out)


def test_mutated_messages_never_surprise() -> None:
    rng = Random(7)
    refused = accepted = 0
    for cls, version in every_version():
        read = decoder(cls, version)
        for _ in range(MUTATIONS_PER_VERSION // 6):
            data = encode(random_message(cls, version, rng), version)
            for _ in range(6):
                hostile = mutated(data, rng)
                try:
                    obj, pos = read(hostile, 0, len(hostile))
                except MalformedMessage:
                    refused += 1
                else:
                    accepted += 1
                    assert pos <= len(hostile)
                    # an accepted message can be written, and has the same meaning again
                    assert decode(cls, encode(obj, version), version) == obj or obj != obj
    assert refused > accepted > MUTATIONS_PER_VERSION * 20, (refused, accepted)


def test_noise_never_surprises() -> None:
    rng = Random(8)
    for cls, version in every_version():
        read = decoder(cls, version)
        for size in (0, 1, 3, 17, 200):
            noise = rng.randbytes(size)
            with suppress(MalformedMessage):
                read(noise, 0, size)


def test_every_truncation_is_refused() -> None:
    rng = Random(9)
    for cls, version in every_version():
        data = encode(random_message(cls, version, rng), version)
        read = decoder(cls, version)
        padded = data + b"\1" * 400  # the receive buffer continues after the frame
        for end in sorted({rng.randrange(len(data)) for _ in range(12)} if data else ()):
            for buffer in (data, padded, memoryview(padded)):
                with pytest.raises(MalformedMessage):
                    read(buffer, 0, end)


@pytest.mark.parametrize("count", [2**31 - 1, ARRAY_ITEMS_MAX + 1, 100_000, -2, -(2**31)])
def test_array_count_is_checked_before_anything_is_made(count: int) -> None:
    data = b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" + count.to_bytes(4, "big", signed=True) + bytes(90_000)
    refuse_quickly(FetchRequest, 4, data)


def test_compact_count_is_checked_before_anything_is_made() -> None:
    for count in (2**32 - 1, ARRAY_ITEMS_MAX + 2, 100_001):
        refuse_quickly(MetadataRequest, 9, uvarint(count) + bytes(90_000))
        refuse_quickly(PartitionRecord, 0, bytes(20) + uvarint(count) + bytes(90_000))


def test_array_of_a_million_is_refused_even_when_it_is_there() -> None:
    empty_topics = encode(FetchRequest(topics=[FetchTopic()]), 4)[-6:]
    head = bytes(17)
    refuse_quickly(
        FetchRequest, 4, head + (ARRAY_ITEMS_MAX + 1).to_bytes(4, "big") + empty_topics * (ARRAY_ITEMS_MAX + 1)
    )


def test_arrays_in_arrays_share_the_elements_of_one_request() -> None:
    """Each array is within its own bound. Groups of a million topics of three bytes took 6.6 s for 30 MB."""
    topics = [OffsetFetchRequestTopics(name="")] * (TOPIC_ELEMENTS_MAX // 8)
    for groups, is_read in ((6, True), (20, False)):
        data = encode(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=topics)] * groups), 8)
        if is_read:
            assert len(decode(OffsetFetchRequest, data, 8).groups) == groups
        else:
            with pytest.raises(MalformedMessage, match="more than allowed"):
                decode(OffsetFetchRequest, data, 8)


def test_numbers_of_partitions_count_as_elements_and_others_as_an_eighth() -> None:
    """Each number of a partition gets an answer: a million of them took 1.4 s in OffsetFetch."""
    group = OffsetFetchRequestGroup(
        "g", topics=[OffsetFetchRequestTopics("t", partition_indexes=[0] * TOPIC_ELEMENTS_MAX)]
    )
    with pytest.raises(MalformedMessage, match="more than allowed"):
        decode(OffsetFetchRequest, encode(OffsetFetchRequest(groups=[group]), 8), 8)
    replicas = list(range(4 * TOPIC_ELEMENTS_MAX))
    topic = CreatableTopic(name="t", assignments=[CreatableReplicaAssignment(0, replicas)])
    request = CreateTopicsRequest(topics=[topic])
    assert decode(CreateTopicsRequest, encode(request, 7), 7) == request


def test_names_of_what_is_no_topic_are_half_as_many() -> None:
    request = DeleteGroupsRequest(groups_names=["g"] * ELEMENTS_MAX)
    assert decode(DeleteGroupsRequest, encode(request, 2), 2) == request
    request.groups_names.append("g")
    with pytest.raises(MalformedMessage, match="more than allowed"):
        decode(DeleteGroupsRequest, encode(request, 2), 2)


def test_what_nodes_send_for_each_of_24_000_partitions_is_read() -> None:
    partitions = [
        PartitionDataRequest(number, new_isr_with_epochs=[BrokerState(1, 1), BrokerState(2, 1), BrokerState(3, 1)])
        for number in range(24_000)
    ]
    request = AlterPartitionRequest(1, 1, [TopicDataRequest(b"t" * 16, partitions)])
    assert len(decode(AlterPartitionRequest, encode(request, 3), 3).topics[0].partitions) == 24_000


def test_lengths_are_checked_before_anything_is_made() -> None:
    refuse_quickly(SaslAuthenticateRequest, 0, (2**31 - 1).to_bytes(4, "big") + b"x")
    refuse_quickly(SaslAuthenticateRequest, 2, uvarint(2**32 - 1) + b"x")
    refuse_quickly(HeartbeatRequest, 0, b"\x7f\xff" + b"x" * 100)
    refuse_quickly(HeartbeatRequest, 4, uvarint(40_000) + b"x" * 50_000)
    refuse_quickly(ProduceRequest, 9, b"\0\0\1\0\0\0\1\2\2t\2\0\0\0\0" + uvarint(2**31) + b"x")


def refuse_quickly(cls: type[Any], version: int, data: bytes) -> None:
    read = decoder(cls, version)
    seconds, peaks = [], []
    for _ in range(3):  # a garbage collection, or another thread's memory, may fall into one of them
        tracemalloc.start()
        started = time.thread_time()
        with pytest.raises(MalformedMessage):
            read(data, 0, len(data))
        seconds.append(time.thread_time() - started)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(seconds) < 0.05
    assert min(peaks) < 300_000


def test_tag_sections_are_bounded() -> None:
    head = encode(HeartbeatRequest(), 4)[:-1]
    refuse(
        HeartbeatRequest,
        4,
        head + uvarint(TAGGED_FIELDS_MAX + 1) + b"\x05\0" * (TAGGED_FIELDS_MAX + 1),
        "more than 10000",
    )
    assert (
        decode(HeartbeatRequest, head + uvarint(TAGGED_FIELDS_MAX) + b"\x05\0" * TAGGED_FIELDS_MAX, 4)
        == HeartbeatRequest()
    )
    refuse(HeartbeatRequest, 4, head + b"\1\5\x7f", "past the end")
    head = encode(FetchRequest(), 12)[:-1]
    refuse(FetchRequest, 12, head + uvarint(TAGGED_FIELDS_MAX + 1), "10001 elements")
    refuse(FetchRequest, 12, head + b"\1\0\x7f\2a", "size does not fit")
    refuse(FetchRequest, 12, head + b"\1\0\4\2abc", "size does not fit")
    assert decode(FetchRequest, head + b"\1\0\2\2a", 12).cluster_id == "a"


def test_null_where_there_is_none() -> None:
    refuse(HeartbeatRequest, 0, b"\xff\xff\0\0\0\0\0\0", "HeartbeatRequest.group_id is null")
    refuse(HeartbeatRequest, 4, b"\0\0\0\0\0\1\0\0", "HeartbeatRequest.group_id is null")
    refuse(FetchRequest, 4, bytes(17) + b"\xff\xff\xff\xff", "FetchRequest.topics is null")


def test_text_that_is_not_utf_8() -> None:
    refuse(ApiVersionsRequest, 3, b"\3\xff\xfe\1\0", "utf-8")


def test_varints_are_bounded() -> None:
    refuse(ApiVersionsRequest, 3, b"\xff\xff\xff\xff\xff\1", "longer than five bytes")
    refuse(ApiVersionsRequest, 3, b"\xff\xff\xff\xff\x1f", "longer than five bytes or 32 bits")


def refuse(cls: type[Any], version: int, data: bytes, why: str) -> None:
    with pytest.raises(MalformedMessage, match=why):
        decode(cls, data, version)
