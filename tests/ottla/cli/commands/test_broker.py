"""`ottla broker`, `ottla partition` and `ottla move`: replicas move on three brokers, and plans are computed."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.cli.drain import plan_drain
from ottla.cli.errors import FAILED, OK, USAGE
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.shared import STEADY
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, **STEADY) as nodes:
        yield nodes


@pytest.fixture
def three(cluster: Cluster) -> Run:
    return Cli(cluster.bootstrap).__call__


def rows(run: Run, *words: str) -> list[dict[str, object]]:
    done = run(*words, "-o", "json")
    assert done.code == OK, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def create(cluster: Cluster, run: Run, topic: str, *words: str) -> None:
    """Create a topic, and wait until every broker has replayed it, because a command may ask any of them."""
    assert run("topic", "create", topic, *words).code == OK
    eventually(
        lambda: not any(cluster.metadata([topic], node).topics[0].error_code for node in cluster.nodes),
        f"{topic} everywhere",
    )


def _held(run: Run, broker: int) -> object:
    """Return the number of replicas of the broker, by the metadata of any broker."""
    return {row["broker"]: row["replicas"] for row in rows(run, "broker", "list")}[broker]


def test_a_partition_moves_and_its_preferred_replica_is_elected(cluster: Cluster, three: Run) -> None:
    create(cluster, three, "moves", "-p", "2", "-r", "2")
    assert three("move", "run", "moves", "--to", "3,1").code == OK
    eventually(
        lambda: [row["replicas"] for row in rows(three, "topic", "describe", "moves")] == [[3, 1], [3, 1]], "the move"
    )
    assert rows(three, "move", "show") == []
    assert {(row["partition"], str(row["replicas"])) for row in rows(three, "partition", "list", "--on", "3")} == {
        (0, "[3, 1]"),
        (1, "[3, 1]"),
    }
    elected = rows(three, "partition", "elect", "moves:0", "moves:1")
    assert {row["result"] for row in elected} <= {"elected", "not needed"}
    eventually(lambda: {row["leader"] for row in rows(three, "topic", "describe", "moves")} == {3}, "the election")


def test_what_cannot_move_is_refused_with_the_reason(cluster: Cluster, three: Run) -> None:
    create(cluster, three, "stays", "-p", "1")
    assert three("move", "run", "stays", "--to", "one").code == USAGE
    unknown = three("move", "run", "stays", "--to", "9")
    assert unknown.code == USAGE and "broker 9 takes no part" in unknown.err
    assert three("move", "run", "--to", "1").code == USAGE
    assert three("move", "plan", "stays").code == USAGE
    assert three("move", "plan", "stays", "--even", "--to", "1").code == USAGE
    assert "none of these partitions" in three("move", "cancel", "stays").err
    assert three("partition", "elect", "--unclean").code == USAGE


def test_a_broker_is_drained_before_it_is_removed_and_only_after_it_has_stopped(cluster: Cluster, three: Run) -> None:
    create(cluster, three, "drained", "-p", "6", "-r", "2")
    eventually(
        lambda: [row["replicas"] for row in rows(three, "broker", "log-dirs", "2")] == [_held(three, 2)],
        "the directories of what the broker holds",
    )
    assert three("broker", "remove", "2").code == FAILED
    everywhere = three("move", "run", "--drain", "2")
    assert everywhere.code == FAILED and "such as stays-0" in everywhere.err
    assert three("topic", "delete", "stays").code == OK
    eventually(lambda: three("move", "run", "--drain", "2", "--dry-run").code == OK, "the end of the topic")
    eventually(lambda: len(rows(three, "move", "plan", "--drain", "2")) == _held(three, 2), "the plan")
    planned = rows(three, "move", "plan", "--drain", "2")
    assert planned and all(2 not in row["new_replicas"] for row in planned)
    assert three("move", "run", "--drain", "2").code == OK
    eventually(lambda: _held(three, 2) == 0, "the end of the moves")
    running = three("broker", "remove", "2")
    assert running.code == FAILED and "is running" in running.err
    cluster.stop(2)
    removed = three("broker", "remove", "2")
    assert removed.code == OK, removed.err
    eventually(lambda: [row["broker"] for row in rows(three, "broker", "list")] == [1, 3], "its removal")
    assert three("move", "run", "--drain", "9").code == USAGE


def test_a_broker_that_was_killed_is_removed_as_soon_as_the_controller_has_fenced_it(
    cluster: Cluster, three: Run
) -> None:
    cluster.restart(2)
    eventually(lambda: [row["broker"] for row in rows(three, "broker", "list")] == [1, 2, 3], "its registration")
    cluster.kill(2)
    removed = three("broker", "remove", "2")
    assert removed.code == OK, removed.err
    eventually(lambda: [row["broker"] for row in rows(three, "broker", "list")] == [1, 3], "its removal")


def test_a_drain_prefers_other_racks_then_brokers_with_few_replicas() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    replicas = {("t", 0): [1, 3], ("t", 1): [3, 1], ("t", 2): [4, 5], ("t", 3): [1, 5]}
    plan = plan_drain([1], replicas, racks)
    assert plan.moves == {("t", 0): [2, 3], ("t", 1): [3, 2], ("t", 3): [4, 5]}
    assert plan.stuck == []


def test_a_partition_that_has_a_replica_everywhere_is_stuck() -> None:
    plan = plan_drain([1], {("t", 0): [1, 2], ("t", 1): [1]}, {1: None, 2: None})
    assert plan.stuck == [("t", 0)] and plan.moves == {("t", 1): [2]}
