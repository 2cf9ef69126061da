"""`ottla replay`: a recording of stock clients gives the same responses again on an empty cluster, and differences where the
cluster differs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.cluster import ClusterClient, parse_bootstrap
from ottla.protocol.api import ApiKey
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.server.world import RealWorld
from ottla.testing import Cluster
from ottla.testing.clients import Replayed
from ottla.testing.connection import ClusterConnection
from ottla.traffic import replaying
from ottla.traffic.entries import (
    Entry,
    EntryKind,
    EntryReader,
    Opened,
    TrafficFileError,
    encode_entry,
    encode_header,
)
from ottla.traffic.replay_report import ReplayReport
from ottla.traffic.replay_target import ClusterTarget, replay_to
from ottla.traffic.routing import GROUP as GROUP_KEYS
from tests.cluster.shared import STEADY
from tests.ottla.conftest import Cli, Finished, run_here
from tests.ottla.traffic.test_record_command import recording

pytestmark = pytest.mark.timeout(120)
TOPIC, GROUP = "replayed", "replaying"


@pytest.fixture(scope="module")
def recorded(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traffic of an idempotent producer, a transaction that reads and writes, and a consumer in a group."""
    file = tmp_path_factory.mktemp("replay") / "f"
    with recording(file, cli.bootstrap) as address:
        servers = {"bootstrap.servers": address}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(TOPIC, 2)])[TOPIC].result(30)
        idempotent = Producer(servers | {"enable.idempotence": True})
        for number in range(20):
            idempotent.produce(TOPIC, b"value %d" % number, partition=number % 2)
        assert idempotent.flush(30) == 0
        consumer = Consumer(servers | {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
        consumer.subscribe([TOPIC])
        found = 0
        while found < 20:
            message = consumer.poll(30)
            assert message is not None
            found += message.error() is None
        transactional = Producer(servers | {"transactional.id": GROUP})
        transactional.init_transactions(30)
        transactional.begin_transaction()
        transactional.produce(TOPIC, b"of a transaction", partition=0)
        offsets = [TopicPartition(TOPIC, partition, 10) for partition in range(2)]
        transactional.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30)
        transactional.commit_transaction(30)
        consumer.close()
    return file


@pytest.fixture
def empty() -> Iterator[Cluster]:
    with Cluster(1, **STEADY) as cluster:
        # Producer ids differ from those in the recording.
        for _ in range(3):
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
            producer.produce("another", b"v")
            assert producer.flush(30) == 0
        yield cluster


def replayed(file: Path, bootstrap: str, *options: str) -> Finished:
    return run_here("replay", str(file), "-b", bootstrap, *options)


def test_an_empty_cluster_answers_as_the_recorded_one(recorded: Path, empty: Cluster) -> None:
    done = replayed(recorded, empty.bootstrap, "--speed", "0", "-o", "json")
    rows = {row["api"]: row for row in map(json.loads, done.out.splitlines())}
    assert done.code == 0, done.err
    assert {"Produce", "Fetch", "JoinGroup", "EndTxn", "TxnOffsetCommit", "InitProducerId"} <= rows.keys()
    assert not any(row["different"] for row in rows.values())
    assert rows["Produce"]["equal"] == rows["Produce"]["requests"]
    values = [record.value for record in empty.records(TOPIC)]
    assert len(values) == 21 and b"of a transaction" in values
    # The second time, existing state differs: the topic exists, and its offsets continue.
    again = replayed(recorded, empty.bootstrap, "--speed", "0", "--every", "0.05")
    assert again.code == 1
    counts = [json.loads(line) for line in again.out.splitlines()]
    so_far = [each["requests"] for each in counts]
    assert so_far == sorted(set(so_far)) and so_far[-1] == sum(row["requests"] for row in rows.values())
    assert counts[-1]["rows"] and "% equal" in counts[-1]["summary"]
    assert "CreateTopics" in again.err and "errorCode: recorded 0, got 36" in again.err


def test_other_leaders_and_coordinators_get_what_is_theirs(recorded: Path) -> None:
    """The recording has one broker. Here partitions have leaders on several, and the group and the transaction coordinators of their own."""
    with Cluster(3, default_replication_factor="1", min_insync_replicas="1", **STEADY) as cluster:
        done = replayed(recorded, cluster.bootstrap, "--speed", "0", "-o", "json")
        rows = {row["api"]: row for row in map(json.loads, done.out.splitlines())}
        assert done.code == 0, done.err
        assert rows["Produce"]["equal"] == rows["Produce"]["requests"]
        assert rows["Fetch"]["equal"] and rows["TxnOffsetCommit"]["equal"]
        (topic,) = cluster.metadata([TOPIC]).topics
        assert len({partition.leader_id for partition in topic.partitions}) == 2
        assert len(cluster.records(TOPIC)) == 21


async def test_a_leader_that_moves_meanwhile_is_followed(tmp_path: Path, recorded: Path) -> None:
    """The partitions move to another broker after half of the recording's Produces."""
    with Cluster(2, default_replication_factor="1", min_insync_replicas="1", **STEADY) as cluster:
        said: list[str] = []
        report = ReplayReport(said.append)

        async def entries() -> AsyncIterator[Entry]:
            with recorded.open("rb") as file:
                for number, entry in enumerate(kept := list(EntryReader(file.read, "f"))):
                    produces = [each for each in kept[:number] if (each.api_key, each.kind) == (0, EntryKind.RESPONSE)]
                    if len(produces) == 1 and not moved:
                        await asyncio.to_thread(move_all, cluster)
                        moved.append(True)
                    yield entry

        moved: list[bool] = []
        address = parse_bootstrap(cluster.bootstrap)
        real = RealWorld(asyncio.get_running_loop())
        client = ClusterClient(real.world, address, 30_000)
        await replay_to(client, entries(), report, 0)
        await client.close()
        await real.close()
        assert moved and not report.has_differences, said
        assert len(cluster.records(TOPIC)) == 21


async def test_a_broker_that_was_not_known_when_the_replay_began_gets_what_it_leads() -> None:
    with Cluster(2, default_replication_factor="1", min_insync_replicas="1", **STEADY) as cluster:
        await asyncio.to_thread(cluster.topic, TOPIC, partitions=2)
        real = RealWorld(asyncio.get_running_loop())
        client = ClusterClient(real.world, parse_bootstrap(cluster.bootstrap), 30_000)
        await client.metadata([])
        del client.brokers[2]
        target = ClusterTarget(client)
        assert [*target.nodes] == [1]
        assert {*(await target.leaders(TOPIC)).values()} == {1, 2} == {*target.nodes}
        (await target.connect(2)).close()
        del client.brokers[2]
        target = ClusterTarget(client)
        keys = [f"group {number}" for number in range(30)]
        async with asyncio.timeout(30):
            found: set[int | None] = set()
            while found != {1, 2}:
                found = {await target.coordinator(GROUP_KEYS, key) for key in keys}
        await client.close()
        await real.close()


def move_all(cluster: Cluster) -> None:
    """Have each partition on the other one of two brokers."""
    (topic,) = cluster.metadata([TOPIC]).topics
    wanted = [
        ReassignablePartition(partition.partition_index, [3 - partition.leader_id]) for partition in topic.partitions
    ]
    host, _, port = cluster.address(1).rpartition(":")
    with ClusterConnection(host, int(port), None) as connection:
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(TOPIC, wanted)])
        connection.request(request, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0)
    while any(
        [partition.leader_id] != want.replicas
        for partition, want in zip(cluster.metadata([TOPIC]).topics[0].partitions, wanted, strict=True)
    ):
        time.sleep(0.05)


def test_a_recording_that_is_cut_off_is_replayed_up_to_there(
    recorded: Path, empty: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the cut may be at a point where the recorder waited for a response
    monkeypatch.setattr(replaying, "PASSING_S_MAX", 1.0)
    data = recorded.read_bytes()
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    done = replayed(tmp_path / "cut", empty.bootstrap, "--speed", "0")
    assert done.code == 0, done.err
    assert "ends within an entry" in done.err
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    (tmp_path / "damaged").write_bytes(damaged)
    done = replayed(tmp_path / "damaged", empty.bootstrap, "--speed", "0")
    assert done.code != 0 and "is damaged at byte" in done.err


def test_the_fixture_of_the_plugin_replays_a_file(
    recorded: Path, tmp_path: Path, kafka_replay: Callable[..., Replayed]
) -> None:
    done = kafka_replay(recorded)
    assert done.differences == (), done.differences
    assert "100.0 % equal" in done.summary and len(done.rows) > 10
    assert any("CreateTopics" in each for each in kafka_replay(recorded).differences)
    (tmp_path / "f").write_text("none")
    with pytest.raises(TrafficFileError, match="no recording"):
        kafka_replay(tmp_path / "f")


def test_an_error_that_does_not_pass_is_waited_for_once(
    recorded: Path, empty: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each Produce to a topic that the cluster lacks would wait again, and a shadow would never end."""
    monkeypatch.setattr(replaying, "PASSING_S_MAX", 1.0)
    with recorded.open("rb") as file:
        reader = EntryReader(file.read, "f")
        entries = list(reader)
    kept = [each for each in entries if each.api_key in (0, 18) or each.kind is EntryKind.OPENED]
    produces = [each for each in kept if each.api_key == 0]
    (tmp_path / "f").write_bytes(encode_header(0) + b"".join(map(encode_entry, [*kept, *produces * 10])))
    began = time.monotonic()
    done = replayed(tmp_path / "f", empty.bootstrap, "--speed", "0", "-o", "json")
    assert done.code == 1 and len(produces) >= 4
    assert time.monotonic() - began < 10


def test_requests_wait_for_their_time(recorded: Path, cli: Cli, tmp_path: Path) -> None:
    """Send the recording's first Metadata again and again, a second apart, at ten times its speed."""
    with recorded.open("rb") as file:
        entries = list(EntryReader(file.read, "f"))
    asked = next(each for each in entries if each.kind is EntryKind.REQUEST and each.api_key == 18)
    answered = next(each for each in entries if each.kind is EntryKind.RESPONSE and each.api_key == 18)
    out = encode_header(0) + encode_entry(Entry(EntryKind.OPENED, 1, 0, frame=Opened("c:1", "b:1").encode()))
    for second in range(6):
        for each in (asked, answered):
            out += encode_entry(
                each._replace(connection=1, correlation_id=asked.correlation_id, time_us=second * 10**6)
            )
    (tmp_path / "slow").write_bytes(out)
    done = replayed(tmp_path / "slow", cli.bootstrap, "--speed", "10", "-o", "json")
    assert done.code == 0, done.err
    assert json.loads(done.out)["equal"] == 6


def test_what_cannot_be_sent_is_counted_with_its_reason(cli: Cli, tmp_path: Path) -> None:
    rows = [
        Entry(EntryKind.REQUEST, 1, 0, 36, 2, 1, b"\0\x24\0\2\0\0\0\1\0\1c\0\1\0", 1),
        Entry(EntryKind.RESPONSE, 1, 0, 36, 2, 1, b"\0\0\0\1\0\0\0\0\1\0\0\0\0\0\0\0\0\0", 1),
        Entry(EntryKind.REQUEST, 1, 0, 500, 0, 2, b"\1\xf4\0\0\0\0\0\2"),
        Entry(EntryKind.RESPONSE, 1, 0, 500, 0, 2, b"\0\0\0\2"),
        Entry(EntryKind.LOST, 0, 0, frame=b"3"),
        Entry(EntryKind.CLOSED, 1, 0),
    ]
    (tmp_path / "f").write_bytes(encode_header(0) + b"".join(map(encode_entry, rows)))
    done = replayed(tmp_path / "f", cli.bootstrap, "-o", "json")
    found = {row["api"]: row["not_compared"] for row in map(json.loads, done.out.splitlines())}
    assert found == {"SaslAuthenticate": "1 a secret, which the recording lacks", "Api500": "1 not readable"}
    assert "has lost 3 frames" in done.err
    assert done.code == 0


def test_wrong_words_and_files_send_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("no recording")
    for words, says in (([], "is no recording"), (["--speed", "-1"], "--speed"), (["--every", "-1"], "--every")):
        done = replayed(tmp_path / "f", cli.bootstrap, *words)
        assert (done.code, done.out) == (2, "")
        assert says in done.err
    (tmp_path / "g").write_bytes(encode_header(0))
    done = replayed(tmp_path / "g", "127.0.0.1:1", "--timeout", "2")
    assert done.code == 1 and "cannot connect" in done.err
