"""A mirror reports what goes wrong on either side, and continues if it can."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import replace

import pytest

from ottla.cli.errors import FAILED
from tests.ottla.conftest import run_here
from tests.ottla.mirror.conftest import Mirror, cluster


def test_records_that_retention_has_deleted_are_counted_and_the_rest_comes(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(10)])
    mirror.once()
    mirror.west.write(topic, [f"{i}" for i in range(10, 30)])
    deleted = run_here("topic", "delete-records", topic, "--before", "25", "-b", mirror.west.bootstrap)
    assert deleted.code == 0, deleted.err
    said = mirror.once().err
    assert f"{topic}-0: 15 offsets from 10 on were deleted by retention before they were mirrored" in said
    assert mirror.values(f"west.{topic}") == [f"{i}".encode() for i in [*range(10), *range(25, 30)]]
    assert mirror.positions(topic) == {0: 30}


@pytest.mark.parametrize("count", [1, 15], ids=["shorter", "longer"])
def test_a_topic_of_the_source_that_was_created_again_is_mirrored_from_its_beginning(
    mirror: Mirror, count: int
) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(10)])
    mirror.once()
    assert run_here("topic", "delete", topic, "--yes", "-b", mirror.west.bootstrap).code == 0
    mirror.west.topic(topic, seed=[f"new {i}" for i in range(count)])
    said = mirror.once().err
    assert f"{topic}-0: its topic was deleted and created again; the new one is mirrored from offset 0 on" in said
    assert mirror.values(f"west.{topic}")[10:] == [b"new %d" % i for i in range(count)]
    assert "created again" not in mirror.once().err


def test_a_worker_goes_on_when_its_topics_are_deleted_and_created_again(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["old"])
    other = mirror.west.topic(f"{mirror.name}-other", seed=["1"])
    mirror.start()
    mirror.until(lambda: mirror.positions(topic) == mirror.positions(other) == {0: 1}, "the first records")
    assert run_here("topic", "delete", topic, "--yes", "-b", mirror.west.bootstrap).code == 0
    mirror.west.topic(topic, seed=[f"new {i}" for i in range(9)])
    mirror.west.write(other, ["2"])
    mirror.until(lambda: mirror.positions(topic) == {0: 9} and mirror.positions(other) == {0: 2}, "all records")
    mirror.stop()
    assert mirror.values(f"west.{topic}") == [b"old", *(b"new %d" % i for i in range(9))]
    assert "created again" in mirror.said()


def test_what_comes_after_the_first_start_is_mirrored_although_it_begins_at_the_ends(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["before"])
    mirror.once("--begin", "latest")
    mirror.west.write(topic, ["while no worker runs"])
    late = mirror.west.topic(f"{mirror.name}-late", seed=["first"])
    mirror.once("--begin", "latest")
    assert mirror.values(f"west.{topic}") == [b"while no worker runs"]
    assert mirror.values(f"west.{late}") == [b"first"]


def test_a_record_that_is_too_large_stops_its_partition_and_no_other(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=2, configs={"max.message.bytes": "1000000"})
    mirror.once()
    limit = ("config", "set", "topic", f"west.{topic}", "max.message.bytes=5000", "-b", mirror.east.bootstrap)
    assert run_here(*limit).code == 0
    rows = [{"value": "v" * 3_000, "partition": 0}] * 5 + [{"value": "v" * 20_000, "partition": 1}]
    mirror.west.write(topic, [*rows, {"value": "after", "partition": 0}])
    said = mirror.once("--no-settings", code=FAILED).err
    assert f"{topic}-1 stops: the record at offset 0 of {topic}-1 takes" in said
    assert f"raise max.message.bytes of west.{topic} in the target: it is 5000" in said
    assert [row.partition for row in mirror.east.records(f"west.{topic}")] == [0] * 6
    mirror.once()
    assert [row.partition for row in mirror.east.records(f"west.{topic}")] == [0] * 6 + [1]


def test_a_worker_is_not_ready_while_the_target_does_not_take_a_partition(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", configs={"max.message.bytes": "1000000"})
    mirror.once()
    limit = ("config", "set", "topic", f"west.{topic}", "max.message.bytes=5000", "-b", mirror.east.bootstrap)
    assert run_here(*limit).code == 0
    mirror.start("--metrics", "127.0.0.1:0", "--no-settings")
    mirror.until(lambda: "metrics at" in mirror.said(), "the address")
    where = next(word for word in mirror.said().split() if word.endswith("/metrics"))
    ready = where.replace("/metrics", "/readyz")
    mirror.until(lambda: answer(ready) == (200, ""), "ready")
    mirror.west.write(topic, ["v" * 20_000])
    mirror.until(lambda: answer(ready)[0] == 503, "not ready")
    assert f"not taken by the target: {topic}-0" in answer(ready)[1]
    line = 'ottla_mirror_stopped_partitions{source="west",target="east"} 1'
    assert line in metrics(where)
    mirror.stop()


def answer(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, ""
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_target_topic_that_is_deleted_meanwhile_is_made_again(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["before"])
    other = mirror.west.topic(f"{mirror.name}-other")
    mirror.start()
    mirror.until(lambda: mirror.positions(topic) == {0: 1}, "the first record")
    assert run_here("topic", "delete", f"west.{topic}", "--yes", "-b", mirror.east.bootstrap).code == 0
    mirror.west.write(topic, ["after"])
    mirror.west.write(other, ["elsewhere"])
    mirror.until(lambda: mirror.positions(topic) == {0: 2} and mirror.positions(other) == {0: 1}, "all records")
    mirror.stop()
    assert mirror.values(f"west.{topic}") == [b"after"]


def test_the_lag_is_in_the_status_and_in_the_metrics_of_a_worker(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(10)])
    mirror.once()
    mirror.west.write(topic, ["more"])
    status = [
        "mirror",
        "status",
        "west",
        "east",
        "-b",
        mirror.west.bootstrap,
        "--to",
        mirror.east.bootstrap,
        "-o",
        "json",
    ]
    (row,) = [json.loads(line) for line in run_here(*status, "--topics", topic).out.splitlines() if topic in line]
    assert row == {
        "topic": topic,
        "partition": 0,
        "target_topic": f"west.{topic}",
        "position": 10,
        "end": 11,
        "recreated": False,
        "lag": 1,
    }
    mirror.start("--metrics", "127.0.0.1:0")
    mirror.until(lambda: mirror.positions(topic) == {0: 11}, "the record")
    where = next(word for word in mirror.said().split() if word.endswith("/metrics"))
    lines = (
        f'ottla_mirror_lag_records{{partition="0",source="west",target="east",topic="{topic}"}} 0',
        'ottla_mirror_records_total{source="west",target="east"} 1',
    )
    # The target has the record before the worker knows this.
    mirror.until(lambda: all(map(metrics(where).__contains__, lines)), "both metrics")
    mirror.stop()


def metrics(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as response:
        return str(response.read().decode())


def test_a_target_that_is_away_gets_the_records_afterwards(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=4)
    with cluster() as east:
        away = replace(mirror, east=east)
        away.start()
        mirror.west.write(topic, ["before"])
        away.until(lambda: sum(away.positions(topic).values()) == 1, "the first record")
        east.kill(1)
        mirror.west.write(topic, [f"away {i}" for i in range(10)])
        away.until(lambda: "cannot connect" in away.said(), "a message about the target")
        east.start(1)
        away.until(lambda: sum(away.positions(topic).values()) == 11, "what came while the node was away")
        away.stop()
        values = away.values(f"west.{topic}")
        assert len(values) == len(set(values)) == 11


@pytest.mark.chaos
def test_a_target_whose_disk_is_full_says_so_and_gets_each_record_once_when_there_is_room(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=4)
    with cluster() as east:
        full = replace(mirror, east=east)
        full.start()
        mirror.west.write(topic, ["before"])
        full.until(lambda: sum(full.positions(topic).values()) == 1, "the first record")
        east.disk_full(1)
        written = [f"{number:06}" + "v" * 20_000 for number in range(400)]  # more bytes than any log has room for
        mirror.west.write(topic, written)
        full.until(lambda: "KAFKA_STORAGE_ERROR" in full.said(), "a message about the target's disk")
        assert sum(full.positions(topic).values()) < 401
        east.disk_full(1, full=False)
        full.until(lambda: sum(full.positions(topic).values()) == 401, "the rest")
        full.stop()
        values = [each or b"" for each in full.values(f"west.{topic}")]
        assert sorted(values) == sorted(each.encode() for each in ["before", *written])
