"""Two responses to one request: they are equal if only names, order or time differ, and a difference has its path."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.protocol.api import ApiKey
from ottla.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from ottla.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.heartbeat import HeartbeatResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.records.builder import build_batch
from ottla.protocol.schema import fields
from ottla.traffic.comparing import LEGAL, Comparison, FieldDifference, has_passing_error
from ottla.traffic.identities import MEMBER, PRODUCER, Identities, NamedPlace
from ottla.traffic.messages import APIS, FrameMessage

OURS, THEIRS = bytes(range(16)), bytes(range(16, 32))


def compared(key: ApiKey, version: int, one: Any, other: Any, known: Identities | None = None) -> list[FieldDifference]:
    identities = Identities() if known is None else known
    return Comparison(key, identities).compare(FrameMessage(one, version, 0), FrameMessage(other, version, 0))


def metadata(node: int, topic_id: bytes, *names: str, error: int = 0) -> MetadataResponse:
    topics = [
        MetadataResponseTopic(error, name, topic_id, partitions=[MetadataResponsePartition(0, 0, node)])
        for name in names
    ]
    return MetadataResponse(0, [MetadataResponseBroker(node, "h", 9)], "c", node, topics)


def test_brokers_ids_and_the_order_of_topics_may_differ() -> None:
    assert not compared(ApiKey.METADATA, 12, metadata(1, OURS, "a", "b"), metadata(2, THEIRS, "b", "a"))


def test_a_topic_that_only_one_has_is_named() -> None:
    found = compared(ApiKey.METADATA, 12, metadata(1, OURS, "a"), metadata(1, OURS, "a", "b"))
    assert [each.path for each in found] == ["topics['b']"]
    found = compared(ApiKey.METADATA, 12, metadata(1, OURS, "a"), metadata(1, OURS, "a", error=3))
    assert found == [FieldDifference("topics['a'].errorCode", "0", "3")]


def test_a_name_is_learned_once_and_is_a_difference_when_it_changes() -> None:
    known = Identities()
    one = InitProducerIdResponse(producer_id=7, producer_epoch=0)
    for _ in range(2):
        assert not compared(ApiKey.INIT_PRODUCER_ID, 4, one, InitProducerIdResponse(producer_id=70), known)
    other = InitProducerIdResponse(producer_id=71)
    assert [each.path for each in compared(ApiKey.INIT_PRODUCER_ID, 4, one, other, known)] == ["producerId"]
    none = InitProducerIdResponse(producer_id=-1, producer_epoch=-1)
    assert {each.path for each in compared(ApiKey.INIT_PRODUCER_ID, 4, one, none)} >= {"producerEpoch"}


def test_members_that_a_group_names_by_itself_are_the_same_members() -> None:
    def joined(*members: str, generation: int) -> JoinGroupResponse:
        rows = [JoinGroupResponseMember(each) for each in members]
        return JoinGroupResponse(generation_id=generation, leader=members[0], member_id=members[0], members=rows)

    known = Identities()
    assert not compared(ApiKey.JOIN_GROUP, 4, joined("a", generation=1), joined("x", generation=4), known)
    assert not compared(ApiKey.JOIN_GROUP, 4, joined("a", "b", generation=2), joined("x", "y", generation=5), known)
    assert not compared(ApiKey.JOIN_GROUP, 4, joined("b", "a", generation=2), joined("y", "x", generation=5), known)
    assert compared(ApiKey.JOIN_GROUP, 4, joined("b", "a", generation=2), joined("x", "y", generation=5), known)


def test_a_member_id_is_learned_from_an_error_and_a_default_beside_one_is_not() -> None:
    known = Identities()
    one = JoinGroupResponse(error_code=79, generation_id=-1, member_id="a")
    assert not compared(
        ApiKey.JOIN_GROUP, 5, one, JoinGroupResponse(error_code=79, generation_id=-1, member_id="x"), known
    )
    assert known.known(NamedPlace(MEMBER, None, "a")) == "x"
    known.learn(NamedPlace(PRODUCER, None, 0), 2000)
    wrong = DescribeTransactionsResponse(transaction_states=[TransactionState(error_code=105)])
    assert not compared(ApiKey.DESCRIBE_TRANSACTIONS, 0, wrong, wrong, known)


def test_quotas_may_come_in_any_order() -> None:
    def quotas(*users: str) -> DescribeClientQuotasResponse:
        entries = [
            EntryData([EntityData("user", user), EntityData("client-id", "c")], [ValueData("k", 1.0)]) for user in users
        ]
        return DescribeClientQuotasResponse(entries=entries)

    assert not compared(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, quotas("a", "b"), quotas("b", "a"))
    assert compared(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, quotas("a", "b"), quotas("b", "c"))


def test_values_of_configurations_are_compared_unless_they_are_of_the_cluster() -> None:
    def described(name: str, value: str) -> DescribeConfigsResponse:
        row = DescribeConfigsResourceResult(name, value, synonyms=[DescribeConfigsSynonym(name, value)])
        return DescribeConfigsResponse(results=[DescribeConfigsResult(0, None, 4, "1", [row])])

    assert not compared(ApiKey.DESCRIBE_CONFIGS, 4, described("log.dirs", "/a"), described("log.dirs", "/b"))
    found = compared(ApiKey.DESCRIBE_CONFIGS, 4, described("retention.ms", "1"), described("retention.ms", "2"))
    assert [each.path.rpartition(".")[2] for each in found] == ["value", "value"]


def fetched(*values: bytes, first: int = 0, error: int = 0) -> FetchResponse:
    records = build_batch([(None, value, 1) for value in values], base_offset=first) if values else b""
    partition = PartitionData(0, error, high_watermark=len(values), records=records)
    return FetchResponse(responses=[FetchableTopicResponse("t", partitions=[partition])])


def test_records_are_compared_where_both_have_them() -> None:
    assert not compared(ApiKey.FETCH, 11, fetched(b"a", b"b"), fetched(b"b", b"c", first=1))
    assert not compared(ApiKey.FETCH, 11, fetched(b"a"), fetched())
    assert not compared(ApiKey.FETCH, 11, fetched(b"a"), FetchResponse())
    (found,) = compared(ApiKey.FETCH, 11, fetched(b"a", b"b"), fetched(b"B", first=1))
    assert found.path == "responses['t'].partitions[0].records[1]" and "b'B'" in found.got
    assert [each.path for each in compared(ApiKey.FETCH, 11, fetched(), fetched(error=1))] == [
        "responses['t'].partitions[0].errorCode"
    ]


def test_an_error_that_passes_is_known_as_one() -> None:
    assert has_passing_error(FrameMessage(HeartbeatResponse(error_code=14), 4, 0))
    assert has_passing_error(FrameMessage(metadata(1, OURS, "a", error=5), 12, 0))
    assert not has_passing_error(FrameMessage(HeartbeatResponse(error_code=27), 4, 0))


def all_fields(cls: Any) -> set[str]:
    found = set()
    for field in fields(cls):
        found.add(field.name)
        inner = field.type.struct or (field.type.item.struct if field.type.item is not None else None)
        if inner is not None:
            found |= all_fields(inner)
    return found


@pytest.mark.parametrize("row", LEGAL)
def test_each_field_that_may_differ_is_one_of_a_response(row: str) -> None:
    name, _, field = row.partition(".")
    apis = [api for api in APIS.values() if not name or api.name == name]
    assert any(field in all_fields(api.response) for api in apis)
