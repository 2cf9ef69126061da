"""The judge notices each wrong history, and no correct one."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord
from ottla.testing import Cluster
from tests.broker.wire import Wire
from tests.chaos.direct import VERSION
from tests.chaos.history import (
    TOPIC,
    UNKNOWN_OFFSET,
    Place,
    Record,
    broken_promises,
    create_topic,
    encode,
    read_everything,
)

FIRST, SECOND = Record(0, 0), Record(0, 4)
AT_0, AT_1, AT_2 = Place(0, 0), Place(0, 1), Place(0, 2)
ACKNOWLEDGED = {FIRST: AT_0, SECOND: AT_1}


@pytest.mark.parametrize(
    ("places", "problem"),
    [
        ({FIRST: [AT_0]}, "1 lost"),
        ({FIRST: [AT_0], SECOND: [AT_1, AT_2]}, "1 doubled"),
        ({FIRST: [AT_0], SECOND: [AT_2]}, "1 moved"),
        ({FIRST: [AT_2], SECOND: [AT_1]}, "stands behind number 4"),
    ],
)
def test_a_broken_promise_has_a_name(places: dict[Record, list[Place]], problem: str) -> None:
    assert any(problem in found for found in broken_promises(ACKNOWLEDGED, places))


def test_a_log_as_it_was_acknowledged_has_no_problem_nor_has_a_record_without_acknowledgement() -> None:
    assert broken_promises(ACKNOWLEDGED, {FIRST: [AT_0], SECOND: [AT_1], Record(1, 0): [AT_2]}) == []


def test_an_acknowledgement_without_an_offset_promises_that_the_record_is_there_and_not_where() -> None:
    acknowledged = {FIRST: Place(0, UNKNOWN_OFFSET), SECOND: AT_1}
    assert broken_promises(acknowledged, {FIRST: [AT_0], SECOND: [AT_1]}) == []
    assert "1 lost" in broken_promises(acknowledged, {SECOND: [AT_1]})[0]


def test_what_a_client_wrote_again_with_another_epoch_is_not_doubled_and_what_one_epoch_has_twice_is() -> None:
    rows = [PartitionProduceData(0, _batch(FIRST, epoch)) for epoch in (0, 1)]
    rows += [PartitionProduceData(1, _batch(SECOND, epoch)) for epoch in (-1, -1)]
    with Cluster(1) as cluster, Wire(cluster.nodes[1].port) as wire:
        create_topic(cluster.bootstrap, 1)
        for row in rows:
            answer = wire.request(
                ProduceRequest(acks=1, topic_data=[TopicProduceData(TOPIC, partition_data=[row])]), VERSION
            )
            assert not answer.responses[0].partition_responses[0].error_code
        (problem,) = broken_promises({}, read_everything(cluster.bootstrap, leaders_change=True))
        assert problem.startswith("1 doubled") and str(SECOND) in problem


def _batch(record: Record, epoch: int) -> bytes:
    """Return a batch with one record, the first of a producer epoch; with -1 for the epoch its producer has no id."""
    value = NewRecord(None, encode(record), 1)
    if epoch < 0:
        return build_batch([value])
    return build_batch([value], producer_id=7, producer_epoch=epoch, base_sequence=0)
