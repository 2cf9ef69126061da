"""Codecs as callers see them: round trips of everything, versions that cannot hold a value, readable tracebacks."""

from __future__ import annotations

import linecache
import traceback
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.protocol.compile import decode, decoder, encode, encoder
from ottla.protocol.errors import MalformedMessage, ProtocolError, UnsupportedVersion
from ottla.protocol.internal_topics.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from ottla.protocol.messages.fetch_snapshot import (
    FetchSnapshotResponse,
    PartitionSnapshotResponse,
    TopicSnapshotResponse,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.shared_structs import TopicIdAssignment, TopicIdPartitions
from ottla.protocol.primitives import STRING_BYTES_MAX
from ottla.protocol.schema import info_of
from tests.effort import examples
from tests.protocol.arbitrary import message_strategy, random_message
from tests.protocol.catalog import every_version, messages


@pytest.mark.parametrize("cls", messages().values(), ids=messages())
def test_any_message_survives_the_wire(cls: type[Any]) -> None:
    versions = info_of(cls).versions.all()

    @settings(max_examples=examples(3 * len(versions)), database=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.sampled_from(versions))
        obj = data.draw(message_strategy(cls, version))
        assert decode(cls, encode(obj, version), version) == obj

    check()


def test_every_version_of_every_message_survives_the_wire() -> None:
    rng = Random(2024)
    for cls, version in every_version():
        for _ in range(4):
            obj = random_message(cls, version, rng)
            data = encode(obj, version)
            assert decode(cls, data, version) == obj, (cls.__name__, version)
            assert decode(cls, memoryview(data), version) == decode(cls, bytearray(data), version)


def test_tagged_fields_of_a_newer_peer_are_skipped() -> None:
    plain = encode(HeartbeatRequest(group_id="g"), 4)
    assert plain[-1] == 0
    tagged = plain[:-1] + b"\x02" + b"\x05\x01x" + b"\xe8\x07\x03abc"
    assert decode(HeartbeatRequest, tagged, 4) == HeartbeatRequest(group_id="g")


def test_value_that_the_version_cannot_hold_is_refused() -> None:
    with pytest.raises(UnsupportedVersion, match=r"HeartbeatRequest.group_instance_id is set, but version 2"):
        encode(HeartbeatRequest(group_id="g", group_instance_id="i"), 2)
    with pytest.raises(UnsupportedVersion):
        encode(FetchRequest(replica_state=ReplicaState(replica_id=3)), 14)
    assert encode(FetchRequest(replica_state=ReplicaState()), 14)  # a value equal to the default counts as not set


def test_ignorable_value_is_dropped_from_versions_without_it() -> None:
    assert encode(FetchRequest(rack_id="r"), 10) == encode(FetchRequest(), 10)
    assert encode(FetchRequest(rack_id="r"), 11) != encode(FetchRequest(), 11)


def test_null_is_refused_where_the_version_has_no_null() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequest.topics is None"):
        encode(MetadataRequest(topics=None), 0)
    assert decode(MetadataRequest, encode(MetadataRequest(topics=None), 1), 1).topics is None
    with pytest.raises(ProtocolError, match=r"name is None"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)
    with pytest.raises(ProtocolError, match=r"unaligned_records is None"):
        records: Any = None
        snapshot = PartitionSnapshotResponse(unaligned_records=records)
        encode(FetchSnapshotResponse(topics=[TopicSnapshotResponse(partitions=[snapshot])]), 0)


def test_versions_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UnsupportedVersion, match="HeartbeatRequest has versions 0-4, not 5"):
        encoder(HeartbeatRequest, 5)
    with pytest.raises(UnsupportedVersion):
        decoder(ProduceRequest, 14)
    with pytest.raises(TypeError, match="a struct inside messages"):
        decoder(TopicProduceData, 9)


def test_bytes_left_over_are_refused_by_decode_alone() -> None:
    data = encode(HeartbeatRequest(), 0) + b"x"
    with pytest.raises(MalformedMessage, match="1 bytes left over"):
        decode(HeartbeatRequest, data, 0)
    assert decoder(HeartbeatRequest, 0)(data, 0, len(data)) == (HeartbeatRequest(), len(data) - 1)


@pytest.mark.parametrize("version", [4, 12, 18])
def test_record_batches_are_pieces_of_their_own(version: int) -> None:
    first, second = memoryview(bytearray(b"a" * 200)), memoryview(b"b")

    def response(batches: Any) -> FetchResponse:
        return FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData(records=batches)])])

    pieces: list[Any] = []
    encoder(FetchResponse, version)(response([first, second]), pieces)
    assert any(piece is first for piece in pieces)
    assert any(piece is second for piece in pieces)
    assert b"".join(pieces) == encode(response(b"a" * 200 + b"b"), version)
    nothing = [encode(response(batches), version) for batches in ([], b"", memoryview(b""))]
    assert len(set(nothing)) == 1
    assert decode(FetchResponse, nothing[0], version) == response(b"")
    assert decode(FetchResponse, encode(response(None), version), version) == response(None)


def test_record_batches_are_read_where_they_lie() -> None:
    sent = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(index=1, records=b"batch")])]
    )
    buffer = bytearray(encode(sent, 9))
    request = decode(ProduceRequest, buffer, 9)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is buffer


def test_nullable_struct() -> None:
    for assignment in (
        None,
        TopicIdAssignment(),
        TopicIdAssignment(topic_partitions=[TopicIdPartitions(partitions=[1, 2])]),
    ):
        response = ConsumerGroupHeartbeatResponse(assignment=assignment)
        assert decode(ConsumerGroupHeartbeatResponse, encode(response, 0), 0) == response


def test_a_nullable_struct_that_is_tagged_has_a_varint_in_front_as_kafka_writes_it() -> None:
    for classic, written in (
        (None, "01 00 01 00"),
        (ClassicMemberMetadata(5), "01 00 07 01 00 00 00 05 01 00"),
    ):
        value = ConsumerGroupMemberMetadataValue(classic_member_metadata=classic)
        data = encode(value, 0)
        assert data.endswith(bytes.fromhex(written))
        assert decode(ConsumerGroupMemberMetadataValue, data, 0) == value


def test_string_longer_than_its_length_can_say_is_refused() -> None:
    request = CreateTopicsRequest(topics=[CreatableTopic(name="x" * (STRING_BYTES_MAX + 1))])
    with pytest.raises(ProtocolError, match="longer than 32767"):
        encode(request, 7)
    with pytest.raises(ProtocolError, match="longer than 32767"):
        encode(request, 4)  # the old form, whose two bytes of length are at the end there
    request.topics[0].name = "x" * STRING_BYTES_MAX
    assert decode(CreateTopicsRequest, encode(request, 4), 4) == request
    assert decode(CreateTopicsRequest, encode(request, 7), 7) == request


def test_traceback_shows_the_compiled_source() -> None:
    broken: Any = HeartbeatRequest(generation_id="seven")
    try:
        encode(broken, 4)
    except Exception:
        text = traceback.format_exc()
    assert "obj.generation_id" in text
    assert any("encode ottla.protocol.messages.heartbeat.HeartbeatRequest v4" in name for name in linecache.cache)
