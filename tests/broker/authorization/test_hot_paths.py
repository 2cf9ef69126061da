"""Produce and Fetch: part of a request refused, sessions, followers."""

from __future__ import annotations

from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.server.authorization.operations import (
    ALL,
    DENY,
    IDEMPOTENT_WRITE,
    TOPIC,
    WRITE,
)
from tests.broker.authorization.entries import (
    ALICE,
    CLUSTER_REFUSED,
    REFUSED,
    TOPIC_REFUSED,
    TRANSACTION_REFUSED,
    acl,
    create,
    delete,
    denied,
    error_codes,
)
from tests.broker.authorization.requests import (
    fetch,
    find_coordinator,
    produce,
)
from tests.broker.wire import Wire


def test_one_refused_topic_does_not_hold_up_the_others_of_a_produce_request(wire: Wire, ids: dict[str, bytes]) -> None:
    request = produce("open", ids, 9)
    request.topic_data += produce("hidden", ids, 9).topic_data
    answer = wire.request(request, 9)
    codes = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert codes == {"open": 0, "hidden": TOPIC_REFUSED}
    assert next(t for t in answer.responses if t.name == "hidden").partition_responses[0].base_offset == -1


def test_without_acknowledgement_a_refusal_closes_the_connection(wire: Wire, ids: dict[str, bytes]) -> None:
    request = produce("hidden", ids, 9)
    request.acks = 0
    wire.send(request, 9)
    assert wire.closed_by_server()


def test_an_idempotent_producer_needs_one_topic_it_may_write_to(wire: Wire) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000)
    assert not error_codes(wire.request(request, 4)) & REFUSED
    nowhere = acl(TOPIC, "*", WRITE, DENY)
    with denied(wire, IDEMPOTENT_WRITE):
        assert not error_codes(wire.request(request, 4)) & REFUSED
        create(wire, nowhere)
        assert error_codes(wire.request(request, 4)) == {CLUSTER_REFUSED}
    delete(wire, nowhere)
    named = InitProducerIdRequest(transactional_id="secret-txn", transaction_timeout_ms=1_000)
    assert error_codes(wire.request(named, 4)) == {TRANSACTION_REFUSED}
    for version in (1, 4):
        assert error_codes(wire.request(find_coordinator("secret-txn", 1, version), version)) == {TRANSACTION_REFUSED}


def test_a_refused_fetch_does_not_wait(wire: Wire, ids: dict[str, bytes]) -> None:
    request = fetch("hidden", ids, 12)
    request.min_bytes, request.max_wait_ms = 1, 60_000
    wire.sock.settimeout(20)
    assert error_codes(wire.request(request, 12)) == {TOPIC_REFUSED}


def test_a_session_loses_a_topic_when_the_permission_goes(wire: Wire, ids: dict[str, bytes]) -> None:
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10)]
    topics = [FetchTopic(topic_id=ids["other"], partitions=partitions)]
    opened = wire.request(FetchRequest(max_bytes=100, session_epoch=0, topics=topics), 17)
    assert opened.session_id
    assert not error_codes(opened)
    theirs = acl(TOPIC, "other", ALL, principal=ALICE)
    create(wire, theirs)
    again = FetchRequest(max_bytes=100, session_id=opened.session_id, session_epoch=1)
    assert error_codes(wire.request(again, 17)) == {TOPIC_REFUSED}
    delete(wire, theirs)
    restored = FetchRequest(max_bytes=100, session_id=opened.session_id, session_epoch=2)
    assert not error_codes(wire.request(restored, 17))


def test_replicas_and_epoch_lookups_of_brokers_need_cluster_action(wire: Wire, ids: dict[str, bytes]) -> None:
    assert TOPIC_REFUSED not in error_codes(wire.request(fetch("hidden", ids, 17, replica_id=7), 17))
    epochs = OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(topic="hidden", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        ],
    )
    assert not error_codes(wire.request(epochs)) & REFUSED
