"""Every API has an error response in every version, with the error where Kafka's clients look for it."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import decode, encode
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.schema import Field, Struct, WireType, fields
from ottla.server.network.error_reply import error_reply

CASES = [(api.key, version) for api in APIS.values() for version in range(api.min_version, api.max_version + 1)]
#: An empty list of log directories is Kafka's whole response here.
NOWHERE_TO_SAY_IT = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "you may not")


def filled(cls: type[Any], version: int) -> Any:
    """Return a message with one element in every array that the version has."""
    message = cls()
    for field in fields(cls):
        if version in field.versions:
            value = sample(field.type, version)
            if value is not None:
                setattr(message, field.name, value)
    return message


def sample(wire_type: WireType, version: int) -> Any:
    if wire_type.item is not None:
        return [sample(wire_type.item, version)]
    if wire_type.struct is not None:
        return filled(wire_type.struct, version)
    return {"str": "name", "bool": False, "bytes": b"b", "uuid": b"u" * 16, "Records": b"", "float64": 0.5}.get(
        wire_type.name, 1
    )


def without_nullable(cls: type[Any], version: int) -> Any:
    """Return a message as `filled` does, with null wherever it may be; the outermost arrays stay, or there would be nothing to answer."""
    message = filled(cls, version)
    for field in fields(cls):
        if version in field.versions:
            setattr(message, field.name, nulled(field, version, outermost=True))
    return message


def nulled(field: Field, version: int, outermost: bool = False) -> Any:
    if version in field.nullable and not (outermost and field.type.item is not None):
        return None
    struct = field.type.struct or (field.type.item.struct if field.type.item is not None else None)
    if struct is None:
        return sample(field.type, version)
    element = struct()
    for inner in fields(struct):
        if version in inner.versions:
            setattr(element, inner.name, nulled(inner, version))
    return element if field.type.item is None else [element]


def codes(value: Any) -> list[int]:
    """All error codes in a message."""
    found: list[int] = []
    if isinstance(value, Struct):
        for name in value.__field_names__:
            if name.endswith("error_code") and name != "topic_config_error_code" and not name.startswith("acknowledge"):
                found.append(getattr(value, name))
            else:
                found += codes(getattr(value, name))
    elif isinstance(value, list):
        for item in value:
            found += codes(item)
    return found


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(value))
def test_an_error_reaches_the_client_in_every_version(key: ApiKey, version: int) -> None:
    api = APIS[key]
    asked = filled(api.request, version)
    response = error_reply(key, version, asked, REFUSED)
    decoded = decode(api.response, encode(response, version), version)
    if (key, version) in NOWHERE_TO_SAY_IT:
        return
    assert REFUSED.code in codes(decoded)


def test_a_fetch_says_it_in_each_partition_up_to_version_12_and_at_the_top_always() -> None:
    asked = FetchRequest(session_id=5, topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=3)])])
    old, new = (error_reply(ApiKey.FETCH, version, asked, REFUSED) for version in (12, 13))
    assert old.error_code == new.error_code == REFUSED.code
    assert (old.session_id, new.session_id) == (5, 5)
    partition = old.responses[0].partitions[0]
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (3, REFUSED.code, -1)
    assert new.responses == []


def test_a_produce_without_acks_is_not_answered() -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=4)])]
    assert error_reply(ApiKey.PRODUCE, 9, ProduceRequest(acks=0, topic_data=data), REFUSED) is None
    partition = (
        error_reply(ApiKey.PRODUCE, 9, ProduceRequest(acks=1, topic_data=data), REFUSED)
        .responses[0]
        .partition_responses[0]
    )
    assert (partition.index, partition.error_code, partition.base_offset) == (4, REFUSED.code, -1)
    assert partition.error_message == "you may not"


def test_the_codes_own_words_are_not_repeated() -> None:
    data = [TopicProduceData(name="t", partition_data=[PartitionProduceData()])]
    error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    response = error_reply(ApiKey.PRODUCE, 9, ProduceRequest(acks=1, topic_data=data), error)
    assert response.responses[0].partition_responses[0].error_message is None


def test_offset_fetch_says_it_per_group_since_version_8() -> None:
    asked = OffsetFetchRequest(
        group_id="g", groups=[OffsetFetchRequestGroup(group_id="a"), OffsetFetchRequestGroup(group_id="b")]
    )
    response = error_reply(ApiKey.OFFSET_FETCH, 8, asked, REFUSED)
    assert [(group.group_id, group.error_code) for group in response.groups] == [
        ("a", REFUSED.code),
        ("b", REFUSED.code),
    ]
    assert response.error_code == ErrorCode.NONE
    assert error_reply(ApiKey.OFFSET_FETCH, 5, asked, REFUSED).error_code == REFUSED.code


@pytest.mark.parametrize(("key", "version"), CASES, ids=lambda value: str(value))
def test_a_request_with_nulls_is_refused_in_a_version_that_cannot_say_them(key: ApiKey, version: int) -> None:
    """Metadata v10 and v11 take a topic without a name, and their answers do not."""
    request = without_nullable(APIS[key].request, version)
    response = error_reply(key, version, request, REFUSED)
    assert encode(response, version)
