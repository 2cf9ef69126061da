"""Workers that share a mirror, and one that is killed: each record is in the target exactly once."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from ottla.cli.errors import FAILED
from tests.ottla.mirror.conftest import Mirror

PARTITIONS = 6
RECORDS = 3_000
#: The session of workers that die or pause: the others wait for its end.
SHORT_MS = 1_000


def write(mirror: Mirror, topic: str, first: int, count: int) -> None:
    rows = [{"value": f"{i}", "partition": i % PARTITIONS} for i in range(first, first + count)]
    mirror.west.write(topic, rows)


def wait_for(mirror: Mirror, topic: str, count: int) -> None:
    mirror.until(lambda: sum(mirror.positions(topic).values()) >= count, f"{count} records")


def check(mirror: Mirror, topic: str, count: int) -> None:
    """Check that all records are there once, in the order of their partition."""
    wait_for(mirror, topic, count)
    seen: dict[int, list[int]] = {}
    for record in mirror.east.records(f"west.{topic}"):
        seen.setdefault(record.partition, []).append(int(record.value or b""))
    assert Counter(value for row in seen.values() for value in row) == Counter(range(count)), mirror.said()
    assert all(row == sorted(row) for row in seen.values())


@pytest.mark.chaos
def test_each_record_comes_once_although_workers_are_killed(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=PARTITIONS)
    written = 0
    worker = mirror.start("--throttle", "60000", session_ms=SHORT_MS)
    for _ in range(3):
        write(mirror, topic, written, RECORDS)
        written += RECORDS
        wait_for(mirror, topic, written - RECORDS + 1)
        worker.kill()
        worker = mirror.start("--throttle", "60000", session_ms=SHORT_MS)
    # The last worker has lanes, too: a signal to a worker that has just started would simply end the process.
    write(mirror, topic, written, RECORDS)
    check(mirror, topic, written + RECORDS)
    mirror.stop()


def test_two_workers_share_the_lanes_and_nothing_comes_twice(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=PARTITIONS)
    first = mirror.start(session_ms=SHORT_MS)
    write(mirror, topic, 0, RECORDS)
    wait_for(mirror, topic, 1)
    mirror.start(session_ms=SHORT_MS)
    mirror.until(lambda: mirror.members() == 2, "two members")
    write(mirror, topic, RECORDS, RECORDS)
    first.kill()
    write(mirror, topic, 2 * RECORDS, RECORDS)
    check(mirror, topic, 3 * RECORDS)
    mirror.until(lambda: mirror.members() == 1, "one member")
    mirror.stop()


def test_a_worker_that_was_paused_writes_nothing_twice(mirror: Mirror) -> None:
    """Its session ends in the middle of its work, another worker takes its lanes, and then it is resumed."""
    topic = mirror.west.topic(f"{mirror.name}-t", partitions=PARTITIONS)
    paused = mirror.start("--throttle", "60000", session_ms=SHORT_MS)
    write(mirror, topic, 0, RECORDS)
    wait_for(mirror, topic, 1)
    write(mirror, topic, RECORDS, RECORDS)
    paused.send_signal(signal.SIGSTOP)
    mirror.start(session_ms=SHORT_MS)
    wait_for(mirror, topic, 2 * RECORDS)
    write(mirror, topic, 2 * RECORDS, RECORDS)
    paused.send_signal(signal.SIGCONT)
    mirror.until(lambda: mirror.members() == 2, "two members")
    write(mirror, topic, 3 * RECORDS, RECORDS)
    check(mirror, topic, 4 * RECORDS)
    mirror.stop()


@pytest.mark.chaos
def test_a_worker_that_would_mirror_something_else_under_the_same_aliases_is_refused(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["1"])
    mirror.start()
    mirror.until(lambda: mirror.positions(topic) == {0: 1}, "the first record")
    for other in (("--topics", f"{mirror.name}-other"), ("--delivery", "at-least-once"), ("--begin", "latest")):
        refused = mirror.once(*other, code=FAILED).err
        assert "the workers of group ottla-mirror.west.east that run do something else" in refused
        assert other[0] in refused and other[1] in refused
    mirror.west.write(topic, ["2"])
    mirror.once()
    mirror.until(lambda: mirror.positions(topic) == {0: 2}, "the record after the refusals")
    mirror.stop()
    mirror.once("--delivery", "at-least-once")  # once they have stopped, another worker may begin
