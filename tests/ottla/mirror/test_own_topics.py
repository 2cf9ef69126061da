"""The mirror's own topics are deleted while a worker runs."""

from __future__ import annotations

from tests.ottla.conftest import run_here
from tests.ottla.mirror.conftest import WAIT_S_MAX, Mirror
from tests.ottla.mirror.test_groups import checkpoints, commit

PAIRS, CHECKPOINTS = "mm2-offset-syncs.west.internal", "west.checkpoints.internal"


def delete(mirror: Mirror, topic: str) -> None:
    assert run_here("topic", "delete", topic, "--yes", "-b", mirror.east.bootstrap).code == 0


def has_records(mirror: Mirror, topic: str) -> bool:
    names = run_here("topic", "list", "-b", mirror.east.bootstrap, "--internal").out.split()
    return topic in names and bool(mirror.east.records(topic))


def test_topics_of_pairs_checkpoints_and_heartbeats_are_made_again_with_what_the_worker_knows(mirror: Mirror) -> None:
    topic, group = mirror.west.topic(f"{mirror.name}-t", seed=[f"{i}" for i in range(30)]), f"{mirror.name}-group"
    commit(mirror, group, topic, 30)
    mirror.heartbeats = True
    mirror.start("--offset-syncs", "target", "--checkpoint-every", "0.5")
    mirror.until(
        lambda: has_records(mirror, CHECKPOINTS) and checkpoints(mirror, group) == [(30, 30)], "the checkpoint"
    )
    for name in (PAIRS, CHECKPOINTS, "heartbeats"):
        delete(mirror, name)
    mirror.until(lambda: all(has_records(mirror, name) for name in (PAIRS, CHECKPOINTS, "heartbeats")), "all three")
    assert f"{PAIRS} was deleted, and is written again" in mirror.said()
    assert checkpoints(mirror, group)[-1] == (30, 30), "no record has come since, and the pair is written again"
    mirror.stop()


def test_a_worker_ends_when_its_positions_are_deleted_and_the_next_one_says_what_comes_again(mirror: Mirror) -> None:
    topic = mirror.west.topic(f"{mirror.name}-t", seed=["0", "1"])
    worker = mirror.start()
    mirror.until(lambda: mirror.positions(topic) == {0: 2}, "the positions")
    delete(mirror, "mm2-offsets.west.internal")
    assert worker.wait(WAIT_S_MAX) == 1, mirror.said()
    assert "mm2-offsets.west.internal was deleted while this worker ran" in mirror.said()
    delete(mirror, "mm2-offsets.west.internal")  # the worker has created it again, without positions
    said = mirror.once().err
    assert f"nothing is known of how far these are mirrored, which the target has already: west.{topic}" in said
    assert mirror.values(f"west.{topic}") == [b"0", b"1", b"0", b"1"]
