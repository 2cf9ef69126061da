"""`--story` over the wire, with stock clients on three nodes: why a group rebalanced, who led a partition, who fenced a producer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from unittest.mock import patch
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.coordinators import group_coordinator, group_id_at, transactional_id_at
from tests.cluster.shared import STEADY, make_topics
from tests.ottla.conftest import Finished, run_here

pytestmark = pytest.mark.timeout(180)

TOPIC = "orders"
#: The node whose properties forbid everyone to read its stories.
SILENT = 3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3, per_node={SILENT: {"ottla.admin.story": "off"}}, **STEADY) as cluster:
        make_topics(AdminClient({"bootstrap.servers": cluster.bootstrap}), NewTopic(TOPIC, 1, 3))
        yield cluster


def ottla(cluster: Cluster, *arguments: str) -> Finished:
    listeners = [f"--admin={node.id}@127.0.0.1:{node.admin_port}" for node in cluster.nodes.values()]
    with patch.dict(os.environ, {"OTTLA_BOOTSTRAP": cluster.bootstrap, "NO_COLOR": "1"}):
        return run_here(*arguments, "--story", "-o", "json", *listeners)


def story(cluster: Cluster, *arguments: str) -> list[dict[str, object]]:
    done = ottla(cluster, *arguments)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.out.splitlines()]


def consumer(cluster: Cluster, group: str, client_id: str) -> Consumer:
    made = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "client.id": client_id})
    made.subscribe([TOPIC])
    return made


def assigned(*consumers: Consumer) -> bool:
    for each in consumers:
        each.poll(0.1)
    return sum(len(each.assignment()) for each in consumers) == 1


def test_a_group_that_rebalances_names_who_joined_and_why(cluster: Cluster) -> None:
    group = group_id_at(cluster, 1, "shop")
    first = consumer(cluster, group, "till-1")
    try:
        eventually(lambda: assigned(first), "the first member's partition", 60)
        second = consumer(cluster, group, "till-2")
        eventually(
            lambda: assigned(first, second)
            and any("generation 2 with 2 members" in str(row["decision"]) for row in story(cluster, "group", "describe", group)),
            "the second generation", 60,
        )  # fmt: skip
        second.close()
    finally:
        first.close()
    rows = story(cluster, "group", "describe", group)
    lines = [f"{row['cause']}: {row['decision']}" for row in rows]
    assert {row["node"] for row in rows} == {group_coordinator(cluster, group)}
    joined = [row for row in rows if row["client"] == "till-2 /127.0.0.1"]
    assert any(
        "Preparing to rebalance" in str(row["decision"]) and "adding new member till-2" in str(row["decision"])
        for row in joined
    )
    assert any(line.startswith("LeaveGroup: Member till-2") for line in lines)
    assert rows == sorted(rows, key=lambda row: row["time_ms"])


def test_a_partition_whose_leader_dies_has_the_next_leader_and_the_one_before(cluster: Cluster) -> None:
    (topic,) = cluster.metadata([TOPIC]).topics
    leader = topic.partitions[0].leader_id
    with urlopen(f"http://127.0.0.1:{cluster.nodes[leader].admin_port}/healthz") as answer:
        assert answer.status == 200
    cluster.kill(leader)
    try:
        alive = next(node_id for node_id in cluster.nodes if node_id != leader)
        eventually(
            lambda: cluster.metadata([TOPIC], alive).topics[0].partitions[0].leader_id not in (-1, leader),
            "a leader",
            60,
        )
        lines = f"Previous leader {leader}"
        eventually(
            lambda: any(
                lines in str(row["decision"]) for row in story(cluster, "topic", "describe", TOPIC, "--partition", "0")
            ),
            lines,
            60,
        )
        done = ottla(cluster, "topic", "describe", TOPIC, "--partition", "0")
        assert f"node {leader}: no answer" in done.err
    finally:
        cluster.start(leader)


def test_a_fenced_producer_is_shown_with_the_one_that_fenced_it(cluster: Cluster) -> None:
    name = transactional_id_at(cluster, 1, "billing")

    def producer(client_id: str) -> Producer:
        settings = {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "client.id": client_id}
        made = Producer({**settings, "log_level": 0})
        made.init_transactions(60)
        return made

    first = producer("biller-a")
    first.begin_transaction()
    first.produce(TOPIC, b"1")
    first.flush()
    producer("biller-b")
    with pytest.raises(KafkaException):
        first.commit_transaction(30)
    rows = story(cluster, "txn", "describe", name)
    lines = [(row["client"], row["cause"], row["decision"]) for row in rows]
    by_second = [
        decision for client, cause, decision in lines if client == "biller-b /127.0.0.1" and cause == "InitProducerId"
    ]
    assert any(f"Fencing the producer of transactionalId {name}" in decision for decision in by_second)
    assert any(client == "biller-a /127.0.0.1" and "was answered" in decision for client, _, decision in lines)


def test_a_node_whose_file_says_so_has_no_stories(cluster: Cluster) -> None:
    done = ottla(cluster, "group", "describe", "none-of-these")
    assert f"node {SILENT}: " in done.err and "ottla.admin.story" in done.err
    assert done.code == 1 and "group none-of-these: no such group" in done.err, done.err
    with pytest.raises(HTTPError, match="403"):
        urlopen(f"http://127.0.0.1:{cluster.nodes[SILENT].admin_port}/story?group=g")


def test_a_cluster_with_permissions_keeps_its_stories_unless_a_file_says_otherwise() -> None:
    for own, status in (({}, 403), ({"ottla.admin.story": "local"}, 200)):
        with Cluster(1, secure=True, per_node={1: own}) as cluster:
            address = f"http://127.0.0.1:{cluster.nodes[1].admin_port}/story?group=g"
            try:
                with urlopen(address) as answer:
                    assert answer.status == status
            except HTTPError as error:
                assert error.code == status
