"""`ottla move` on three nodes: plans, throttled runs, cancelling, and rejections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from urllib.request import urlopen

import pytest

from ottla.cli.commands.move import load_rows
from ottla.cli.errors import FAILED, INTERRUPTED, USAGE
from ottla.client.moves import LEADERS, RATES
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.shared import STEADY
from tests.ottla.cli.shims.recorded import run_ours
from tests.ottla.conftest import Cli, command

MB = 1_000_000


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Run three nodes without other topics, because the tests look at the moves of all partitions."""
    if given := os.environ.get("OTTLA_TEST_BOOTSTRAP_OF_THREE"):
        yield Cli(given)
        return
    with Cluster(3, **STEADY) as cluster:
        yield Cli(cluster.bootstrap, cluster.nodes[1].admin_port)


def test_a_drained_broker_that_is_down_is_shown_with_nothing_left() -> None:
    place = ("orders", 0)
    shown = load_rows({place: [2, 1]}, {place: [3, 1]}, {place: 7}, {1: "a", 3: "b"})  # the rack of broker 2 is unknown
    (lost,) = (row for row in shown if row["broker"] == 2)
    assert (lost["replicas"], lost["new_replicas"], lost["leaders"], lost["new_leaders"]) == (1, 0, 1, 0)
    assert [row["broker"] for row in shown] == [1, 2, 3]


def topic_of_one(cli: Cli, partitions: int = 1) -> str:
    """Create a topic whose partitions have one replica each. Return its name."""
    name = f"{cli.topic()}-of-one"
    cli.ok("topic", "create", name, "-p", str(partitions), "-r", "1")
    for address in cli.bootstrap.split(
        ","
    ):  # A command may ask any of the brokers, and some replay the topic a moment later.
        eventually(partial(_knows, cli, address, name), f"{name} at {address}")
    return name


def _knows(cli: Cli, address: str, topic: str) -> bool:
    return cli("topic", "describe", topic, "-b", address).code == 0


def replicas(cli: Cli, topic: str) -> list[list[int]]:
    lines = cli.ok("topic", "describe", topic, "-o", "json").splitlines()
    return [json.loads(line)["replicas"] for line in lines]


def brokers(cli: Cli) -> list[int]:
    return [int(str(row["broker"])) for row in cli.rows("broker", "list")]


def throttles(cli: Cli, topic: str) -> set[object]:
    """Return the throttles of a topic and of the brokers. None stands for no throttle."""
    found = {row["value"] for row in cli.rows("config", "get", "topic", topic, LEADERS)}
    for broker in brokers(cli):
        found |= {row["value"] for row in cli.rows("config", "get", "broker", str(broker)) if row["name"] in RATES}
    return found


def test_a_plan_is_made_run_with_a_throttle_and_taken_back(three: Cli, tmp_path: Path) -> None:
    _, two, _ = brokers(three)
    topic, plan, back = topic_of_one(three, 2), str(tmp_path / "plan.json"), str(tmp_path / "back.json")
    three.ok("produce", topic, stdin=("x" * 1000 + "\n") * 500)
    before = replicas(three, topic)
    rows = three.rows("move", "plan", topic, "--among", f"{two}", "--save", plan)
    assert sum(int(str(row["bytes"])) for row in rows) > 0
    assert "nothing was changed" in three("move", "run", "--plan", plan, "--dry-run").err
    done = three("move", "run", "--plan", plan, "--throttle", str(100 * MB), "--rollback", back)
    assert done.code == 0, done.err
    assert replicas(three, topic) == [[two], [two]]
    assert throttles(three, topic) <= {None, "", str(2**63 - 1)}
    assert three("move", "run", "--plan", back, "--yes").code == 0
    assert replicas(three, topic) == before
    assert len(three.ok("consume", topic, "-o", "hex").splitlines()) == 500


def test_a_run_that_is_interrupted_says_what_goes_on_and_is_cancelled(three: Cli, tmp_path: Path) -> None:
    one, two, _ = brokers(three)
    topic, plan = topic_of_one(three), tmp_path / "plan.json"
    three.ok("move", "run", topic, "--to", f"{one}")
    three.ok("produce", topic, stdin=("x" * 100_000 + "\n") * 50)
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "replicas": [two]}]}))
    arguments = command("move", "run", "--plan", str(plan), "--throttle", "10000", "-b", three.bootstrap)
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        assert running.stderr.readline() == "1 partition to change, 5.0 MB to move\n"
        progress = json.loads(running.stderr.readline())
        assert (progress["unit"], progress["done"] < progress["total"]) == ("bytes", True)
        running.send_signal(signal.SIGINT)
        assert running.wait() == INTERRUPTED
        assert "ottla move cancel" in running.stderr.read().splitlines()[-1]
    (row,) = three.rows("move", "show")
    assert (row["topic"], row["adding"], int(str(row["bytes"])) > 5 * MB) == (topic, [two], True)
    check_that_nothing_is_wrong(three, topic, one, two)
    assert three("move", "plan", "--even").code == FAILED
    assert "would cancel" in three("move", "cancel", "--dry-run").err
    three.ok("move", "cancel", topic)
    assert replicas(three, topic) == [[one]] and three.rows("move", "show") == []
    assert throttles(three, topic) <= {None, "", str(2**63 - 1)}
    assert three("move", "cancel").code == FAILED
    assert "no broker is throttled" in three("move", "unthrottle").err


def check_that_nothing_is_wrong(three: Cli, topic: str, source: int, target: int) -> None:
    """Check that nothing is reported while the only replica of a topic is copied to another broker: a planned move is no alarm
    (KIP-455).
    """
    assert three("cluster", "health").err == "healthy\n"
    assert [row["out_of_sync"] for row in three.rows("broker", "list")] == [0, 0, 0]
    (shape,) = three.rows("topic", "list", topic)
    assert shape["replication_factor"] == 1
    target_stops, source_stops = (three("cluster", "may-stop", str(node)) for node in (target, source))
    assert (target_stops.code, f"{topic}-0" in target_stops.err) == (0, False), target_stops.err
    assert (source_stops.code, f"{topic}-0 will be unavailable meanwhile" in source_stops.err) == (0, True)
    describe = ("kafka-topics", ["--bootstrap-server", three.bootstrap, "--describe", "--topic", topic])
    head, partition = run_ours(*describe, "").out.splitlines()
    assert "\tReplicationFactor: 1\t" in head
    assert f"\tIsr: {source}\tAdding Replicas: {target}\tRemoving Replicas: {source}\tElr: " in partition
    assert run_ours(describe[0], [*describe[1], "--under-replicated-partitions"], "").out == ""
    if three.admin_port:
        with urlopen(f"http://127.0.0.1:{three.admin_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        labels = f'{{partition="0",topic="{topic}"}}'
        for name, value in (("underreplicated", 0), ("replicascount", 1), ("insyncreplicascount", 1)):
            assert f"kafka_cluster_partition_{name}{labels} {value}.0" in lines
        assert "kafka_server_replicamanager_underreplicatedpartitions 0.0" in lines
        assert "kafka_server_replicamanager_reassigningpartitions 1.0" in lines


def test_an_uneven_cluster_is_planned_evened_and_drained(three: Cli) -> None:
    one, two, three_ = brokers(three)
    topic = topic_of_one(three, 6)
    three.ok("move", "run", topic, "--to", f"{one}")
    assert "NEW-LEADERS" in three.ok("move", "plan", topic, "--even")
    assert replicas(three, topic) == [[one]] * 6
    assert three("move", "run", topic, "--even").code == 0
    held = [nodes[0] for nodes in replicas(three, topic)]
    assert len(set(held)) > 1
    assert three("move", "run", topic, "--drain", f"{two}", "--drain", f"{one}").code == 0
    assert replicas(three, topic) == [[three_]] * 6
    assert three("move", "plan", topic, "--drain", f"{one}", "--drain", f"{two}", "--drain", f"{three_}").code == FAILED


def test_wrong_plans_are_refused_and_nothing_moves(three: Cli, tmp_path: Path) -> None:
    topic, plan = topic_of_one(three), tmp_path / "plan.json"
    for text, says in [
        ("{", "no JSON"),
        ('{"partitions": [{"topic": "no-such", "partition": 0, "replicas": [1]}]}', "no partition no-such-0"),
        (f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "replicas": [99]}}]}}', "broker 99 takes no part"),
    ]:
        plan.write_text(text)
        done = three("move", "run", "--plan", str(plan))
        assert done.code == USAGE and says in done.err, text
    assert three("move", "run", "--plan", str(plan), "--throttle", "1").code == USAGE
    assert three("move", "plan", topic, "--among", "one").code == USAGE
    assert three("move", "plan", topic + "x", "--among", "1").code == FAILED
    no_partition = three("move", "plan", f"{topic}:9", "--among", "1")
    assert (no_partition.code, f"no partition {topic}-9" in no_partition.err) == (USAGE, True)
    assert three.rows("move", "show") == []
