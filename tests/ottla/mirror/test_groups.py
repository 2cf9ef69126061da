"""A consumer that fails over to the target continues where its group was in the source."""

from __future__ import annotations

import json

from confluent_kafka import Consumer

from ottla.client.group_offsets import commit_offsets, committed_offsets
from ottla.mirror.formats import read_checkpoint
from ottla.protocol.records.record import Record
from ottla.testing import Cluster
from tests.ottla.conftest import run_here
from tests.ottla.mirror.conftest import WAIT_S_MAX, Mirror

RECORDS = 400


def commit(mirror: Mirror, group: str, topic: str, offset: int) -> None:
    mirror.west._do(lambda cluster: commit_offsets(cluster, group, {(topic, 0): offset}), WAIT_S_MAX)


def committed(mirror: Mirror, group: str) -> dict[tuple[str, int], int]:
    return mirror.east._do(lambda cluster: committed_offsets(cluster, group), WAIT_S_MAX)


def checkpoints(mirror: Mirror, group: str) -> list[tuple[int, int]]:
    rows = [
        read_checkpoint(Record(row.offset, 0, row.key, row.value))
        for row in mirror.east.records("west.checkpoints.internal")
    ]
    return [(row.upstream, row.downstream) for row in rows if row is not None and row.group == group]


def value_at(mirror: Mirror, topic: str, offset: int) -> bytes | None:
    return next(record.value for record in mirror.east.records(topic) if record.offset >= offset)


def has_read(consumer: Consumer, seen: list[bytes | None], last: bytes) -> bool:
    seen += [message.value() for message in consumer.consume(RECORDS, 0.5) if message.error() is None]
    return last in seen


def test_a_group_goes_on_in_the_target_without_missing_a_record(mirror: Mirror) -> None:
    """The source has markers of transactions, and so has the target: offsets differ."""
    topic, group = mirror.west.topic(f"{mirror.name}-t"), f"{mirror.name}-group"
    producer = mirror.west.producer(transactional_id=f"{topic}-id")
    producer.init_transactions(30)
    for first in range(0, RECORDS, 40):
        producer.begin_transaction()
        for number in range(first, first + 40):
            producer.produce(topic, f"{number}")
        producer.commit_transaction(30)
        if first == 200:
            mirror.once()
    consumed = next(row.offset for row in mirror.west.records(topic) if row.value == b"300")
    commit(mirror, group, topic, consumed)
    mirror.once("--sync-group-offsets")
    place = (f"west.{topic}", 0)
    offset = committed(mirror, group)[place]
    consumer = Consumer(
        {"bootstrap.servers": mirror.east.bootstrap, "group.id": group, "auto.offset.reset": "error", "log_level": 0}
    )
    consumer.subscribe([place[0]])
    seen: list[bytes | None] = []
    mirror.until(lambda: has_read(consumer, seen, b"399"), "the last record")
    consumer.close()
    assert 200 <= int(seen[0] or b"") <= 300
    assert checkpoints(mirror, group) == [(consumed, offset)]


def test_a_group_at_the_end_is_translated_exactly_and_never_set_back(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(150)]), f"{mirror.name}-group"
    commit(mirror, group, topic, 150)
    mirror.once()
    assert checkpoints(mirror, group) == [(150, 150)]
    assert committed(mirror, group) == {}
    mirror.west.write(topic, [f"{i}" for i in range(150, 160)])
    mirror.once()
    # The next record has another offset, because the marker of the former transaction takes one.
    assert checkpoints(mirror, group) == [(150, 150), (150, 151)]
    commit(mirror, group, topic, 155)
    mirror.once("--sync-group-offsets")
    assert checkpoints(mirror, group)[2:] == [(155, 152)]
    commit(mirror, group, topic, 160)
    mirror.once("--sync-group-offsets")
    (_, end) = checkpoints(mirror, group)[-1]
    assert value_at(mirror, f"west.{topic}", end - 1) == b"159"
    commit(mirror, group, topic, 159)
    mirror.once("--sync-group-offsets")
    assert committed(mirror, group) == {(f"west.{topic}", 0): end}


def delete(cluster: Cluster, topic: str) -> None:
    assert run_here("topic", "delete", topic, "--yes", "-b", cluster.bootstrap).code == 0


def test_checkpoints_begin_again_with_a_topic_that_was_deleted_and_created_again(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(30)]), f"{mirror.name}-group"
    remote = f"west.{topic}"
    offsets = ("mirror", "offsets", "west", group, "--set", "-b", mirror.east.bootstrap)
    commit(mirror, group, topic, 30)
    mirror.once()
    assert checkpoints(mirror, group) == [(30, 30)]
    delete(mirror.east, remote)
    said = run_here(*offsets).err
    assert f"group {group} is not set in {remote}-0: checkpoints of topics that were deleted" in said
    mirror.west.write(topic, [f"{i}" for i in range(30, 40)])
    said = mirror.once().err
    assert f"1 checkpoints of {remote} begin again: it was deleted and created again in the target" in said
    commit(mirror, group, topic, 40)
    mirror.once()
    assert checkpoints(mirror, group)[1:] == [(30, 0), (40, 10)]
    assert f"group {group}: set 1 of 1 offset" in run_here(*offsets).err
    assert committed(mirror, group) == {(remote, 0): 10}
    # The new topic of the source is longer, so no offset goes back.
    delete(mirror.west, topic)
    mirror.west.topic(topic, seed=[f"new {i}" for i in range(60)])
    commit(mirror, group, topic, 60)
    said = mirror.once().err
    assert f"1 checkpoints of {remote} begin again: it was deleted and created again in the source" in said
    (upstream, downstream) = checkpoints(mirror, group)[-1]
    assert (upstream, value_at(mirror, remote, downstream - 1)) == (60, b"new 59")


def test_a_group_of_the_target_that_stands_behind_the_end_of_a_log_is_set_back(mirror: Mirror) -> None:
    """The offset does not belong to this log: the topic was deleted and the coordinator kept the offset, or the log has lost
    records.
    """
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=["0", "1"]), f"{mirror.name}-group"
    commit(mirror, group, topic, 2)
    mirror.once()
    place = (f"west.{topic}", 0)
    mirror.east._do(lambda cluster: commit_offsets(cluster, group, {place: 9}), WAIT_S_MAX)
    said = run_here("mirror", "offsets", "west", group, "--set", "-b", mirror.east.bootstrap).err
    assert f"group {group} is set back from 9 to 2 in {place[0]}-0, which ends at 3" in said
    assert committed(mirror, group) == {place: 2}


def test_the_offsets_of_a_group_with_members_in_the_target_stay(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=["0", "1"]), f"{mirror.name}-group"
    mirror.once()
    consumer = mirror.east.consumer(f"west.{topic}", group_id=group, enable_auto_commit=False)
    consumer.consume(1, 30)
    commit(mirror, group, topic, 2)
    mirror.once("--sync-group-offsets")
    assert committed(mirror, group) == {}
    consumer.close()
    mirror.once("--sync-group-offsets")
    assert committed(mirror, group) == {(f"west.{topic}", 0): 2}


def test_groups_that_are_not_selected_have_no_checkpoint(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["0"])
    for group in (f"{mirror.name}-yes", f"{mirror.name}-no", f"console-consumer-{mirror.name}"):
        commit(mirror, group, topic, 1)
    mirror.once("--exclude-groups", ".*-no")
    groups = (f"{mirror.name}-yes", f"{mirror.name}-no")
    assert [len(checkpoints(mirror, group)) for group in groups] == [1, 0]


def test_pairs_can_be_kept_in_the_target_and_heartbeats_are_in_both(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=["0"]), f"{mirror.name}-group"
    commit(mirror, group, topic, 1)
    mirror.heartbeats = True
    mirror.once("--offset-syncs", "target")
    assert checkpoints(mirror, group) == [(1, 1)]
    assert mirror.east.records("mm2-offset-syncs.west.internal")
    assert {row.key for row in mirror.east.records("heartbeats")} == {b"\0\4west\0\4east"}
    mirror.once()
    assert {row.key for row in mirror.west.records("heartbeats")} == {b"\0\4east\0\4west"}
    mirror.once()
    assert mirror.east.records("west.heartbeats")


def test_the_offsets_are_shown_and_set_where_the_source_is_gone(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=["0", "1"]), f"{mirror.name}-group"
    commit(mirror, group, topic, 2)
    mirror.once()
    asked = ("mirror", "offsets", "west", group, "-b", mirror.east.bootstrap)
    assert json.loads(run_here(*asked, "-o", "json").out) == {
        "group": group,
        "topic": f"west.{topic}",
        "partition": 0,
        "source": 2,
        "offset": 2,
    }
    assert "nothing was changed" in run_here(*asked, "--set", "--dry-run").err
    assert committed(mirror, group) == {}
    assert f"group {group}: set 1 of 1 offset" in run_here(*asked, "--set").err
    assert committed(mirror, group) == {(f"west.{topic}", 0): 2}
    unknown = run_here("mirror", "offsets", "west", f"{group}x", "-b", mirror.east.bootstrap)
    assert (unknown.code, f"'{group}'" in unknown.err) == (1, True)
