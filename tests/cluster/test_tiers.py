"""Old segments are in a store, which stock clients do not notice: reads across the local start offset, retention, restarts and
failovers (KIP-405).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, OffsetSpec

from ottla.broker.tiers.objects import OWNER
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.storage.producers import producer_snapshots
from ottla.testing import Cluster
from ottla.testing.connection import ClusterConnection
from tests.broker.conftest import eventually

pytestmark = pytest.mark.timeout(180)

TIERED = {
    "remote.storage.enable": "true",
    "local.retention.ms": "1",
    "internal.segment.bytes": "30000",
    "retention.ms": "-1",
}
VALUE = b"x" * 900
COUNT = 600


def tiered_cluster(nodes: int, store: Path, **properties: str) -> Cluster:
    return Cluster(
        nodes,
        remote_log_storage_system_enable="true",
        ottla_tier_location=str(store),
        rlmm_config_remote_log_metadata_topic_num_partitions="3",
        rlmm_config_remote_log_metadata_topic_replication_factor=str(nodes),
        remote_log_manager_task_interval_ms="200",
        log_retention_check_interval_ms="200",
        file_delete_delay_ms="0",
        **properties,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def cluster(store: Path) -> Iterator[Cluster]:
    with tiered_cluster(1, store) as running:
        yield running


def create(cluster: Cluster, topic: str, replicas: int = 1, **configs: str) -> None:
    config = TIERED | {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient(cluster.client_settings)
    admin.create_topics([NewTopic(topic, 1, replicas, config=config)])[topic].result(30)


def write(cluster: Cluster, topic: str, first: int, count: int) -> None:
    producer = cluster.producer(enable_idempotence=True)
    for number in range(first, first + count):
        producer.produce(topic, value=b"%06d" % number + VALUE, timestamp=1_700_000_000_000 + number * 1_000)
        if number % 10 == 0:
            producer.flush()
    assert producer.flush(60) == 0


def numbers(cluster: Cluster, topic: str, count: int, **settings: str) -> list[int]:
    consumer = cluster.consumer(**settings)
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, 0, 0)]
    )  # there is no coordinator, whose broker a test may have stopped
    found: list[int] = []
    try:
        while len(found) < count:
            batch = consumer.consume(min(500, count - len(found)), 20)
            assert batch, f"{len(found)} of {count} records came"
            for message in batch:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                assert value[6:] == VALUE
                assert message.offset() == len(found)
                found.append(int(value[:6]))
    finally:
        consumer.close()
    return found


def offset(cluster: Cluster, topic: str, spec: OffsetSpec) -> int:
    partition = confluent_kafka.TopicPartition(topic, 0)
    admin = AdminClient(cluster.client_settings)
    return int(admin.list_offsets({partition: spec})[partition].result(30).offset)


def alter(cluster: Cluster, topic: str, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient(cluster.client_settings)
    admin.incremental_alter_configs([change])[change].result(30)


def segments(cluster: Cluster, topic: str, node: int = 1) -> list[Path]:
    return sorted(Path(cluster.node(node).data_dir).rglob(f"{topic}-0/*.log"))


def local_start(cluster: Cluster, topic: str, node: int = 1) -> int:
    return int(segments(cluster, topic, node)[0].stem)


def tiered(cluster: Cluster, topic: str) -> None:
    """Wait until only the active segment is on the local disk."""
    eventually(lambda: len(segments(cluster, topic)) == 1, "the active segment alone is here", 60)


def test_a_consumer_reads_across_the_border_and_sees_no_difference(cluster: Cluster, store: Path) -> None:
    create(cluster, "events")
    write(cluster, "events", 0, COUNT)
    tiered(cluster, "events")
    assert local_start(cluster, "events") > COUNT // 2
    stored = sorted(path.suffix for path in store.rglob("events-0-*/*") if path.name.startswith("0" * 20))
    assert stored == [".index", ".leader_epoch_checkpoint", ".log", ".snapshot", ".timeindex"]
    assert numbers(cluster, "events", COUNT) == list(range(COUNT))
    assert numbers(cluster, "events", COUNT, isolation_level="read_uncommitted") == list(range(COUNT))


@pytest.mark.compat
def test_a_share_group_gets_each_record_of_both_sides_once(cluster: Cluster) -> None:
    create(cluster, "spread")
    write(cluster, "spread", 0, COUNT)
    tiered(cluster, "spread")
    assert local_start(cluster, "spread") > COUNT // 2
    found: list[int] = []
    group = ConfigResource(
        ConfigResource.Type.GROUP,
        "spreaders",
        incremental_configs=[
            ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
        ],
    )
    admin = AdminClient(cluster.client_settings)
    admin.incremental_alter_configs([group])[group].result(30)
    with confluent_kafka.ShareConsumer(cluster.client_settings | {"group.id": "spreaders"}) as consumer:
        consumer.subscribe(["spread"])

        def all_came() -> bool:
            for message in consumer.poll(1):
                assert message.error() is None, message.error()
                found.append(int((message.value() or b"")[:6]))
            return len(found) >= COUNT

        eventually(all_came, "all records came", 60)
    assert sorted(found) == list(range(COUNT))


def test_offsets_by_time_and_by_name_know_both_sides(cluster: Cluster) -> None:
    create(cluster, "timed")
    write(cluster, "timed", 0, COUNT)
    tiered(cluster, "timed")
    for number in (0, 1, 37, 100, local_start(cluster, "timed") - 1, local_start(cluster, "timed"), COUNT - 1):
        assert offset(cluster, "timed", OffsetSpec.for_timestamp(1_700_000_000_000 + number * 1_000)) == number
    assert offset(cluster, "timed", OffsetSpec.earliest()) == 0
    assert offset(cluster, "timed", OffsetSpec.latest()) == COUNT


def test_delete_records_and_retention_delete_from_the_store(cluster: Cluster, store: Path) -> None:
    create(cluster, "short")
    write(cluster, "short", 0, COUNT)
    tiered(cluster, "short")
    before = len(list(store.rglob("short-0-*/*.log")))
    assert before > 4
    admin = AdminClient(cluster.client_settings)
    partition = confluent_kafka.TopicPartition("short", 0, 200)
    admin.delete_records([partition])[confluent_kafka.TopicPartition("short", 0)].result(30)
    eventually(lambda: len(list(store.rglob("short-0-*/*.log"))) < before, "segments leave the store", 30)
    assert offset(cluster, "short", OffsetSpec.earliest()) == 200
    alter(cluster, "short", "retention.ms", "1000")  # all records have timestamps of 2023
    eventually(lambda: not list(store.rglob("short-0-*/*.log")), "all segments leave the store", 30)
    assert offset(cluster, "short", OffsetSpec.earliest()) >= local_start(cluster, "short")


@pytest.mark.parametrize("stop", [pytest.param("stop", marks=pytest.mark.chaos), "kill"])
def test_a_restart_finds_everything_again(cluster: Cluster, stop: str) -> None:
    topic = f"again-{stop}"
    create(cluster, topic)
    write(cluster, topic, 0, COUNT)
    tiered(cluster, topic)
    getattr(cluster, stop)(1)
    cluster.start(1)
    assert numbers(cluster, topic, COUNT) == list(range(COUNT))
    write(cluster, topic, COUNT, 100)
    assert numbers(cluster, topic, COUNT + 100) == list(range(COUNT + 100))


def test_aborted_transactions_stay_hidden_across_the_border(cluster: Cluster) -> None:
    create(cluster, "paid")
    producer = cluster.producer(transactional_id="payer", linger_ms=0)
    producer.init_transactions(30)
    kept: list[int] = []
    for number in range(60):
        producer.begin_transaction()
        for part in range(6):
            producer.produce("paid", value=b"%06d" % (number * 6 + part) + VALUE)
        producer.flush()
        if number % 3:
            producer.commit_transaction(30)
            kept += range(number * 6, number * 6 + 6)
        else:
            producer.abort_transaction(30)
    tiered(cluster, "paid")
    consumer = cluster.consumer("paid", isolation_level="read_committed")
    found: list[int] = []
    while len(found) < len(kept):
        batch = consumer.consume(len(kept) - len(found), 20)
        assert batch
        found += [int((message.value() or b"")[:6]) for message in batch]
    consumer.close()
    assert found == kept


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"cleanup.policy": "compact"}, "Remote log storage only supports topics with cleanup.policy=delete"),
        ({"cleanup.policy": "compact,delete"}, "Remote log storage only supports topics with cleanup.policy=delete"),
        (
            {"retention.ms": "1000", "local.retention.ms": "2000"},
            "Value must not be more than retention.ms property value: 1000",
        ),
        (
            {"retention.ms": "1000", "local.retention.ms": "-1"},
            "Value must not be -1 as retention.ms value is set as 1000.",
        ),
    ],
)
def test_what_kafka_refuses_is_refused_in_its_words(cluster: Cluster, configs: dict[str, str], says: str) -> None:
    admin = AdminClient(cluster.client_settings)
    with pytest.raises(confluent_kafka.KafkaException, match=says):
        admin.create_topics([NewTopic("refused", 1, 1, config=TIERED | configs)])["refused"].result(30)


def test_in_a_location_of_another_cluster_nothing_is_written_and_all_stays_here(tmp_path: Path) -> None:
    (tmp_path / OWNER).write_text("its-original")
    with tiered_cluster(1, tmp_path) as fork:
        create(fork, "events")
        write(fork, "events", 0, COUNT)
        eventually(lambda: "the location is of cluster its-original" in fork.log(1), "the log names the owner", 60)
        assert [path.name for path in tmp_path.iterdir()] == [OWNER]
        assert local_start(fork, "events") == 0
        assert numbers(fork, "events", COUNT) == list(range(COUNT))


def test_remote_storage_is_not_switched_off_by_the_way(cluster: Cluster) -> None:
    create(cluster, "switched")
    with pytest.raises(
        confluent_kafka.KafkaException, match="It is invalid to disable remote storage without deleting remote data"
    ):
        alter(cluster, "switched", "remote.storage.enable", "false")


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_cluster(3, tmp_path_factory.mktemp("store of three")) as running:
        yield running


def leader(cluster: Cluster, topic: str) -> int:
    admin = AdminClient(cluster.client_settings)
    return int(admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


@pytest.mark.chaos
def test_followers_delete_what_is_stored_and_lead_on(three: Cluster) -> None:
    """Each replica deletes its old segments once the store has them. The next leader knows what is stored, and goes on
    copying.
    """
    create(three, "shared", replicas=3, min_insync_replicas="2")
    write(three, "shared", 0, COUNT)
    for node in three.node_ids:
        eventually(lambda node=node: len(segments(three, "shared", node)) == 1, f"node {node} keeps one segment", 60)
    first = leader(three, "shared")
    three.kill(first)
    write(three, "shared", COUNT, COUNT)
    second = leader(three, "shared")
    assert second != first
    eventually(lambda: local_start(three, "shared", second) > COUNT, "the next leader copies on", 60)
    assert numbers(three, "shared", 2 * COUNT) == list(range(2 * COUNT))
    three.start(first)
    eventually(lambda: local_start(three, "shared", first) > COUNT, "the former leader follows", 60)
    assert numbers(three, "shared", 2 * COUNT) == list(range(2 * COUNT))


def replicas_of(cluster: Cluster, topic: str, *node_ids: int) -> None:
    """Move the topic to these nodes, and wait until all of them are in sync."""
    moved = ReassignablePartition(partition_index=0, replicas=list(node_ids))
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=[moved])])
    with ClusterConnection("127.0.0.1", cluster.node(node_ids[0]).port, None) as connection:
        answer = connection.request(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    assert answer.error_code == answer.responses[0].partitions[0].error_code == 0
    admin = AdminClient(cluster.client_settings)

    def is_done() -> bool:
        found = admin.list_topics(topic, timeout=30).topics[topic].partitions[0]
        return sorted(found.replicas) == sorted(found.isrs) == sorted(node_ids)

    eventually(is_done, f"{topic} is on {node_ids} alone", 60)


def test_a_new_replica_begins_at_the_leaders_disk_and_leads_the_whole_log(three: Cluster) -> None:
    """The replica joins the ISR with the records that the store does not have, and goes on with the producers' sequences from
    the store.
    """
    create(three, "moved", replicas=1)
    old = leader(three, "moved")
    new = next(node for node in three.node_ids if node != old)
    producer = three.producer(enable_idempotence=True)
    for number in range(COUNT):
        producer.produce("moved", value=b"%06d" % number + VALUE)
        producer.flush()
    eventually(lambda: len(segments(three, "moved", old)) == 1, "the active segment alone is here", 60)
    replicas_of(three, "moved", old, new)
    start = local_start(three, "moved", new)
    assert start == local_start(three, "moved", old) > COUNT // 2
    [state] = producer_snapshots.decode("", (segments(three, "moved", new)[0].with_suffix(".snapshot")).read_bytes())
    assert state.last_offset == start - 1
    replicas_of(three, "moved", new)
    assert leader(three, "moved") == new
    assert numbers(three, "moved", COUNT) == list(range(COUNT))
    for number in range(COUNT, COUNT + 50):
        producer.produce("moved", value=b"%06d" % number + VALUE)
        assert producer.flush(60) == 0
    three.kill(new)
    three.start(new)
    assert numbers(three, "moved", COUNT + 50) == list(range(COUNT + 50))


@pytest.mark.chaos
def test_a_replica_that_lost_its_disk_gets_what_only_the_store_has(three: Cluster) -> None:
    create(three, "lost", replicas=3)
    write(three, "lost", 0, COUNT)
    for node in three.node_ids:
        eventually(lambda node=node: len(segments(three, "lost", node)) == 1, f"node {node} keeps one segment", 60)
    follower = next(node for node in three.node_ids if node != leader(three, "lost"))
    three.stop(follower)
    shutil.rmtree(Path(three.node(follower).data_dir) / "lost-0")
    write(three, "lost", COUNT, 20)
    three.start(follower)
    admin = AdminClient(three.client_settings)
    eventually(
        lambda: follower in admin.list_topics("lost", timeout=30).topics["lost"].partitions[0].isrs,
        "the replica is in sync again",
        60,
    )
    others = [node for node in three.node_ids if node != follower]
    first = leader(three, "lost")
    three.stop(first)
    eventually(lambda: leader(three, "lost") not in (-1, first), "another leader", 60)
    # The follower could lead as well, but this test is about the replica that came back.
    if leader(three, "lost") != follower:
        third = next(node for node in others if node != first)
        three.start(first)
        eventually(
            lambda: first in admin.list_topics("lost", timeout=30).topics["lost"].partitions[0].isrs, "in sync", 60
        )
        three.stop(third)
        eventually(lambda: leader(three, "lost") in (first, follower), "another leader", 60)
    assert numbers(three, "lost", COUNT + 20) == list(range(COUNT + 20))
    for node in others:
        three.start(node)
