"""Control and data batches of the metadata log, as bytes."""

from __future__ import annotations

import pytest

from ottla.controller.raft.batches import CommittedBatch, as_batch, control_bytes, data_batch, read_control, split
from ottla.controller.raft.messages import ControlRecords, LeaderChange
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import MalformedMessage
from ottla.protocol.records.batch import BatchView
from tests.protocol.records.reference import crc_is_valid

#: The first batch of Apache Kafka 4.3.1's log and of Ottla's have the same LeaderChangeMessage: v0 of the only voter 1, with
#: its granting voters. `kafka-dump-log` reads version 0 only.
LEADER_CHANGE_V0 = bytes.fromhex("00000000000102000000010002000000010000")
VOTERS = VoterSet.of([Voter(ReplicaKey(1, b"d" * 16), (QuorumEndpoint("CONTROLLER", "h", 1),))])
CHANGE = LeaderChange(ReplicaKey(1, b"d" * 16), (ReplicaKey(1, b"d" * 16),), (ReplicaKey(1, b"d" * 16),))


def view(data: bytes) -> BatchView:
    return BatchView(memoryview(data))


def test_a_leader_change_is_kafkas_to_the_byte() -> None:
    data = control_bytes(ControlRecords(CHANGE), base_offset=7, epoch=3, now_ms=1000)
    batch = view(data)
    assert (batch.base_offset, batch.partition_leader_epoch, batch.is_control, crc_is_valid(batch)) == (
        7,
        3,
        True,
        True,
    )
    (record,) = batch.records()
    assert record.key == b"\0\0\0\x02"
    assert record.value == LEADER_CHANGE_V0


def test_voters_and_kraft_version_survive_the_round_trip() -> None:
    records = ControlRecords(CHANGE, 1, VOTERS)
    batch = view(control_bytes(records, base_offset=0, epoch=1, now_ms=0))
    read = read_control(batch)
    assert (read.kraft_version, read.voters) == (1, VOTERS)
    assert read.leader_change is not None and read.leader_change.leader.id == 1
    seen = as_batch(batch)
    assert (seen.last_offset, seen.voters, seen.kraft_version) == (2, VOTERS, 1)


def test_a_data_batch_hands_its_values_to_the_listener() -> None:
    batch = CommittedBatch(view(data_batch([b"a", b"bb"], base_offset=5, epoch=2, now_ms=9)))
    assert (batch.base_offset, batch.last_offset, batch.epoch, batch.append_time_ms) == (5, 6, 2, 9)
    assert batch.records == [b"a", b"bb"]
    assert not batch.is_control


def test_records_are_split_by_size_in_order() -> None:
    values = [bytes([number]) * 100 for number in range(10)]
    runs = list(split(values, 300))
    assert [len(run) for run in runs] == [2, 2, 2, 2, 2]
    assert [value for run in runs for value in run] == values
    assert list(split([b"x" * 1000, b"y"], 300)) == [[b"x" * 1000], [b"y"]], "one that is too large goes alone"
    assert list(split([], 300)) == []


def test_voters_that_name_a_node_twice_are_malformed() -> None:
    twice = VoterSet((*VOTERS.voters, *VOTERS.voters))
    with pytest.raises(MalformedMessage, match="twice"):
        read_control(view(control_bytes(ControlRecords(None, 1, twice), base_offset=0, epoch=1, now_ms=0)))
