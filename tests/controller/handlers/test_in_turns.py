"""Requests that are decided in several turns of the event loop: what each turn appends, and when the response comes."""

from __future__ import annotations

from typing import Any, cast

import pytest

from ottla.controller.decisions.elections import LOOKED_AT_MAX
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.handlers import cluster
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.periodic import NEXT_PART_MS
from ottla.controller.routes import ROUTES
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
)
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, PartitionDataRequest, TopicDataRequest
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest
from ottla.server.network.context import RequestContext
from ottla.server.quotas.clients import ClientQuotas
from tests.broker.cluster.test_lifecycle import Client
from tests.controller.decisions.test_brokers import registration
from tests.controller.test_runtime import Quorum, active, refusal, register, topic, write_partitions

MANY = 5 * PARTITIONS_PER_TURN


def parts_of(quorum: Quorum) -> ControllerComponents:
    unused = cast("Any", None)
    return ControllerComponents(
        unused, quorum.controller, quorum.scheduled_tasks, unused, unused, ClientQuotas(quorum.clock)
    )


def context(api_key: ApiKey) -> RequestContext:
    return RequestContext(api_key, 0, "node", Client())


def crowded() -> Quorum:
    """Return a quorum in which broker 1 leads thousands of partitions, and has lost its connection: it may register again at
    once.
    """
    quorum = active()
    quorum.write(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    for broker_id in (1, 2):
        register(quorum, broker_id)
    write_partitions(quorum, MANY, [1, 2])
    quorum.commit()
    quorum.scheduled_tasks.connection_lost(1)
    return quorum


def held(quorum: Quorum) -> int:
    index = quorum.controller.state.index
    return len(index.in_isr(1)) + len(index.in_elr(1))


def test_a_registration_appends_a_bounded_batch_in_each_turn_and_is_answered_once_all_are_committed() -> None:
    quorum = crowded()
    before = len(quorum.log.batches)
    answer = cluster.handle_registration(parts_of(quorum), registration(), context(ApiKey.BROKER_REGISTRATION))
    assert len(quorum.log.batches) == before + 1, "one turn"
    assert quorum.controller.image.cluster.brokers[1].fenced
    quorum.write(NoOpRecord())  # a record of another request
    quorum.clock.advance(quorum.clock.now_ms)
    sizes = [len(batch.records) for batch in quorum.log.batches[before:]]
    assert max(sizes) <= PARTITIONS_PER_TURN + 1 and sum(sizes) == MANY + 3
    assert held(quorum) == 0 and not answer.done
    quorum.commit(len(sizes) - 1)
    assert not answer.done
    quorum.commit()
    response = answer.take()
    assert response.broker_epoch == quorum.log.log_end_offset - 1 == quorum.controller.image.cluster.brokers[1].epoch


def test_a_leadership_lost_between_two_turns_of_a_registration_answers_that_and_appends_nothing_more() -> None:
    quorum = crowded()
    answer = cluster.handle_registration(parts_of(quorum), registration(), context(ApiKey.BROKER_REGISTRATION))
    quorum.commit()
    quorum.controller.leader_changed(2, 2)
    end = quorum.log.log_end_offset
    quorum.clock.advance(quorum.clock.now_ms)
    assert refusal(answer) == "NOT_CONTROLLER"
    assert quorum.log.log_end_offset == end
    # The same holds if this node leads again by then, because the decisions of the former term may be lost.
    quorum.elect(3)
    quorum.clock.advance(quorum.clock.now_ms)
    again = cluster.handle_registration(parts_of(quorum), registration(), context(ApiKey.BROKER_REGISTRATION))
    quorum.controller.leader_changed(2, 4)
    quorum.elect(5)
    quorum.clock.advance(quorum.clock.now_ms)
    assert refusal(again) == "NOT_CONTROLLER"
    assert 0 < held(quorum) < MANY or quorum.controller.image.cluster.brokers[1].fenced


def test_a_registration_refused_in_a_later_turn_leaves_the_rest_to_the_usual_turns_of_a_fenced_broker() -> None:
    """The former incarnation still exists, and its heartbeat comes between two turns; then its connection is lost again."""
    quorum = crowded()
    answer = cluster.handle_registration(parts_of(quorum), registration(), context(ApiKey.BROKER_REGISTRATION))
    request = registration(cluster_id="another")
    with pytest.raises(KafkaError, match="another"):
        cluster.handle_registration(parts_of(quorum), request, context(ApiKey.BROKER_REGISTRATION))
    quorum.write(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1))
    quorum.controller.heartbeats.touch(1, fenced=False, metadata_offset=0, now_ms=quorum.clock.now_ms)
    quorum.clock.advance(quorum.clock.now_ms)
    quorum.commit()
    assert refusal(answer) == "DUPLICATE_BROKER_REGISTRATION"
    assert not quorum.controller.image.cluster.brokers[1].fenced
    quorum.scheduled_tasks.connection_lost(1)
    quorum.clock.advance(quorum.clock.now_ms + 10_000)
    assert not quorum.controller.state.index.in_isr(1)


def test_a_broker_is_unregistered_in_bounded_batches() -> None:
    quorum = crowded()
    before = len(quorum.log.batches)
    request = UnregisterBrokerRequest(broker_id=1)
    answer = cluster.handle_unregister_broker(parts_of(quorum), request, context(ApiKey.UNREGISTER_BROKER))
    quorum.clock.advance(quorum.clock.now_ms)
    quorum.commit()
    assert answer.take().error_code == 0
    assert 1 not in quorum.controller.image.cluster.brokers
    assert max(len(batch.records) for batch in quorum.log.batches[before:]) <= PARTITIONS_PER_TURN + 1


def test_a_bug_in_a_later_turn_is_an_unknown_server_error_and_later_requests_are_served() -> None:
    quorum = active()
    turns = []

    def decide(state: Any) -> Outcome[Any]:
        turns.append(state)
        assert len(turns) < 2, "by mistake"
        return Outcome([NoOpRecord()], None)

    answer = quorum.controller.write_in_turns(decide)
    quorum.clock.advance(quorum.clock.now_ms)
    assert refusal(answer) == ErrorCode.UNKNOWN_SERVER_ERROR.name
    quorum.write(topic("a"))
    quorum.commit()
    assert "a" in quorum.loader.image.topics


def test_a_search_for_preferred_leaders_goes_on_where_its_last_part_ended() -> None:
    """If each part began at the start, the search would never get past partitions that keep their leaders."""
    quorum = active()
    for broker_id in (1, 2):
        register(quorum, broker_id)
    write_partitions(quorum, LOOKED_AT_MAX, [3, 1])  # broker 3 is gone, so that broker 1 leads them
    quorum.write(*_topic_of_broker_2())
    quorum.commit()
    quorum.scheduled_tasks._rebalance()  # it is due after five minutes; the sessions of these brokers would have ended by then
    quorum.clock.advance(NEXT_PART_MS)
    partition = quorum.controller.image.topics.partition(topic("b").topic_id, 0)
    assert partition is not None and partition.leader == 2


def _topic_of_broker_2() -> list[Any]:
    """Return the records of a topic whose partition broker 1 leads."""
    partition = PartitionRecord(partition_id=0, topic_id=topic("b").topic_id, replicas=[2, 1], isr=[2, 1], leader=1)
    return [topic("b"), partition]


def test_the_isrs_of_thousands_of_partitions_are_decided_in_turns_with_one_answer() -> None:
    quorum = crowded()
    before = len(quorum.log.batches)
    (handler,) = (handler for key, handler in ROUTES if key is ApiKey.ALTER_PARTITION)
    wanted = [
        PartitionDataRequest(partition_index=index, leader_epoch=0, partition_epoch=0, new_isr=[1])
        for index in range(MANY)
    ]
    topics = [TopicDataRequest(topic_id=topic("a").topic_id, partitions=wanted)]
    request = AlterPartitionRequest(broker_id=1, broker_epoch=1, topics=topics)
    answer = handler(parts_of(quorum), request, context(ApiKey.ALTER_PARTITION))
    assert len(quorum.log.batches) == before + 1, "one turn"
    quorum.clock.advance(0)
    sizes = [len(batch.records) for batch in quorum.log.batches[before:]]
    assert max(sizes) == PARTITIONS_PER_TURN and sum(sizes) == MANY and not answer.done
    quorum.commit()
    assert [each.error_code for each in answer.take().topics[0].partitions] == [0] * MANY
