"""Names that each cluster chooses itself: they are learned from pairs of responses, and put into requests, also into batches."""

from __future__ import annotations

import pytest

from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.records.batch import BatchView, crc32c
from ottla.protocol.records.builder import build_batch
from ottla.traffic import identities as identities_module
from ottla.traffic.identities import EPOCH, GENERATION, MEMBER, PRODUCER, TOPIC, Identities, NamedPlace

OURS, THEIRS = bytes(range(16)), bytes(range(16, 32))


@pytest.fixture
def known() -> Identities:
    made = Identities()
    made.learn(NamedPlace(PRODUCER, None, 7), 1000)
    made.learn(NamedPlace(EPOCH, 7, 0), 3)
    made.learn(NamedPlace(MEMBER, None, "m-recorded"), "m-here")
    made.learn(NamedPlace(GENERATION, "m-recorded", 1), 5)
    made.learn(NamedPlace(TOPIC, None, OURS), THEIRS)
    return made


def test_names_in_a_request_become_those_of_the_cluster(known: Identities) -> None:
    ended = EndTxnRequest("t", producer_id=7, producer_epoch=0, committed=True)
    known.translate(ended)
    assert ended == EndTxnRequest("t", producer_id=1000, producer_epoch=3, committed=True)
    beat = HeartbeatRequest("g", generation_id=1, member_id="m-recorded")
    known.translate(beat)
    assert beat == HeartbeatRequest("g", generation_id=5, member_id="m-here")
    synced = SyncGroupRequest("g", 1, "m-recorded", assignments=[SyncGroupRequestAssignment("m-recorded", b"a")])
    known.translate(synced)
    assert synced.assignments == [SyncGroupRequestAssignment("m-here", b"a")]
    fetch = FetchRequest(
        session_id=99, topics=[FetchTopic(topic_id=OURS, partitions=[FetchPartition(current_leader_epoch=4)])]
    )
    known.translate(fetch)
    assert (fetch.session_id, fetch.topics[0].topic_id) == (99, THEIRS), "sessions are of brokers: fetch_sessions.py"
    assert fetch.topics[0].partitions[0].current_leader_epoch == -1, "leaders have other epochs here"


def test_what_is_not_known_stays(known: Identities) -> None:
    other = EndTxnRequest("t", producer_id=8, producer_epoch=0)
    known.translate(other)
    assert other == EndTxnRequest("t", producer_id=8, producer_epoch=0)
    first = FetchRequest(session_id=0)
    known.translate(first)
    assert first.session_id == 0


def test_batches_get_the_producer_of_the_cluster_and_a_valid_crc(known: Identities) -> None:
    def batch(producer_id: int) -> bytes:
        return build_batch([(b"k", b"v", 1)], producer_id=producer_id, producer_epoch=0, base_sequence=4)

    data = batch(7) + batch(-1) + batch(8)
    request = ProduceRequest(topic_data=[TopicProduceData("t", partition_data=[PartitionProduceData(0, data)])])
    known.translate(request)
    records = request.topic_data[0].partition_data[0].records
    assert records is not None
    own = BatchView(memoryview(records))
    assert (own.producer_id, own.producer_epoch, own.base_sequence) == (1000, 3, 4)
    assert own.crc == crc32c(bytes(own.buffer)[21:])
    assert bytes(records[own.size :]) == batch(-1) + batch(8)
    assert known.translated_records(b"no batch") == b"no batch"


def test_the_oldest_name_gives_way_to_more_than_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities_module, "NAMES_MAX", 2)
    known = Identities()
    for number in range(3):
        known.learn(NamedPlace(PRODUCER, None, number), number + 10)
    assert [known.known(NamedPlace(PRODUCER, None, number)) for number in range(3)] == [None, 11, 12]
