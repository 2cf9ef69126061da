"""Client quotas over the wire: they are set, described and kept; responses have the throttle time, and the connection is not
read for so long.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntryDataRequest,
    OpData,
)
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.describe_quorum import DescribeQuorumRequest, TopicDataRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.protocol.messages.shared_structs import EntityData, PartitionIndex
from tests.broker.conftest import Node, eventually, start_node, stop_node
from tests.broker.records import batch
from tests.broker.wire import TIMEOUT_S, Wire
from tests.ports import free_ports

SetQuota = Callable[..., None]
DEFAULT = ""  # in these tests it stands for the default entity


def entity(parts: dict[str, str]) -> list[EntityData]:
    return [EntityData(entity_type=kind.replace("_", "-"), entity_name=name or None) for kind, name in parts.items()]


def alter(node: Node, quotas: dict[str, float | None], **parts: str) -> tuple[ErrorCode, str | None]:
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    with node.wire("quota admin") as wire:
        request = AlterClientQuotasRequest(entries=[EntryDataRequest(entity=entity(parts), ops=ops)])
        answer = wire.request(request).entries[0]
    return ErrorCode(answer.error_code), answer.error_message


@pytest.fixture
def quota(node: Node) -> Iterator[SetQuota]:
    """Yield a function that sets quotas, which are removed after the test."""
    were_set = []

    def set_quota(**parts_and_quotas: object) -> None:
        quotas = {key: float(str(value)) for key, value in parts_and_quotas.items() if "_rate" in key or "_perc" in key}
        parts = {key: str(value) for key, value in parts_and_quotas.items() if key not in quotas}
        assert alter(node, dict(quotas), **parts)[0] == ErrorCode.NONE
        were_set.append((quotas, parts))
        eventually(lambda: described(node, **parts), "the quota to be published")

    yield set_quota
    for quotas, parts in were_set:
        alter(node, dict.fromkeys(quotas), **parts)


def described(node: Node, **parts: str) -> dict[str, float]:
    components = [
        ComponentData(entity_type=kind.replace("_", "-"), match_type=0 if name else 1, match=name or None)
        for kind, name in parts.items()
    ]
    with node.wire("quota admin") as wire:
        answer = wire.request(DescribeClientQuotasRequest(components=components, strict=True))
    assert answer.error_code == 0, answer.error_message
    return {value.key: value.value for entry in answer.entries for value in entry.values}


def produced(topic: str, size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch([bytes(size)]))
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def fetched(wire: Wire, topic: str, offset: int = 0, version: int = 12, **options: int) -> FetchResponse:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=options.get("session_epoch", -1),
        session_id=options.get("session_id", 0),
        topics=[] if options.get("session_id") else [FetchTopic(topic=topic, partitions=[partition])],
    )
    answer: FetchResponse = wire.request(request, version)
    return answer


def test_quotas_are_set_described_changed_and_removed(node: Node) -> None:
    assert alter(node, {"producer_byte_rate": 1000.0, "request_percentage": 12.5}, user="ann")[0] == ErrorCode.NONE
    assert alter(node, {"consumer_byte_rate": 7.0}, user="ann", client_id=DEFAULT)[0] == ErrorCode.NONE
    eventually(lambda: described(node, user="ann", client_id=DEFAULT), "both quotas")
    assert described(node, user="ann") == {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert alter(node, {"producer_byte_rate": None}, user="ann")[0] == ErrorCode.NONE
    eventually(lambda: described(node, user="ann") == {"request_percentage": 12.5}, "the quota to be gone")
    alter(node, {"request_percentage": None}, user="ann")
    alter(node, {"consumer_byte_rate": None}, user="ann", client_id=DEFAULT)
    eventually(lambda: not described(node), "no quotas")


@pytest.mark.parametrize(
    ("quotas", "parts"),
    [
        ({"producer_byte_rate": -1.0}, {"user": "ann"}),
        ({"producer_byte_rate": 0.0}, {"user": "ann"}),
        ({"producer_byte_rate": float("nan")}, {"user": "ann"}),
        ({"producer_byte_rate": 1.5}, {"user": "ann"}),
        ({"producer_byte_rate": 1e30}, {"user": "ann"}),
        ({"records_per_second": 1.0}, {"user": "ann"}),
        ({"connection_creation_rate": 1.0}, {"user": "ann"}),
        ({"producer_byte_rate": 1.0}, {"ip": "10.0.0.1"}),
        ({"producer_byte_rate": 1.0}, {"group": "g"}),
        ({"producer_byte_rate": 1.0}, {}),
        ({"connection_creation_rate": 1.0}, {"ip": "10.0.0.1", "user": "ann"}),
    ],
)
def test_what_is_no_quota_is_refused_and_nothing_kept(
    node: Node, quotas: dict[str, float | None], parts: dict[str, str]
) -> None:
    code, message = alter(node, quotas, **parts)
    assert code == ErrorCode.INVALID_REQUEST
    assert message


def test_a_producer_above_its_quota_is_answered_at_once_and_then_not_read_for_the_throttle_time(
    node: Node, quota: SetQuota
) -> None:
    node.create("throttled")
    quota(client_id="greedy", producer_byte_rate=20_000)
    quota(client_id="greedier", producer_byte_rate=500)
    with node.wire("greedy") as wire, node.wire("greedier") as patient, node.wire("modest") as other:
        assert wire.request(produced("throttled", 10_000), 9).throttle_time_ms == 0
        began = time.monotonic()
        answer = wire.request(produced("throttled", 24_000), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 150 < answer.throttle_time_ms <= 800, "a burst is one second's bytes, and the rest is owed"
        assert other.request(produced("throttled", 30_000), 9).throttle_time_ms == 0
        wire.request(ApiVersionsRequest(), 0)
        assert time.monotonic() - began >= answer.throttle_time_ms / 1_000 - 0.01
        answer = patient.request(produced("throttled", 24_000), 9)
        assert answer.throttle_time_ms > 4_000 * TIMEOUT_S, (
            "the answer comes first (KIP-219), or it would not be in time"
        )


def test_pipelined_requests_of_a_throttled_producer_are_all_answered(node: Node, quota: SetQuota) -> None:
    node.create("pipelined")
    quota(client_id="pipelined", producer_byte_rate=50_000)
    with node.wire("pipelined") as wire:
        for acks, size in zip((1, -1, 1, -1, 1, -1), (12_000,) * 5 + (60_000,), strict=True):
            wire.send(produced("pipelined", size, acks), 9)
        answers: list[ProduceResponse] = [wire.receive(ApiKey.PRODUCE, 9) for _ in range(6)]
    assert [a.responses[0].partition_responses[0].base_offset for a in answers] == list(range(6))
    assert answers[-1].throttle_time_ms > 0, "it alone is more than a second's bytes"


def test_a_producer_without_answers_is_muted_too(node: Node, quota: SetQuota) -> None:
    node.create("unanswered")
    quota(client_id="acks0", producer_byte_rate=20_000)
    with node.wire("acks0") as wire:
        began = time.monotonic()
        wire.send(produced("unanswered", 30_000, acks=0), 9)
        wire.request(ApiVersionsRequest(), 0)
        assert time.monotonic() - began >= 0.4


def test_a_consumer_above_its_quota_gets_nothing_and_then_what_it_asked_for(node: Node, quota: SetQuota) -> None:
    node.create("fetched")
    with node.wire() as wire:
        for _ in range(3):
            wire.request(produced("fetched", 30_000), 9)
    quota(client_id="reader", consumer_byte_rate=20_000)
    with node.wire("reader") as wire:
        first = fetched(wire, "fetched", session_epoch=0)
        assert first.session_id
        assert first.throttle_time_ms == 0
        (data,) = first.responses[0].partitions
        assert len(data.records or b"") > 30_000, "a batch above the quota still comes whole"
        began = time.monotonic()
        epoch = 1
        while (empty := fetched(wire, "fetched", session_epoch=epoch, session_id=first.session_id)).responses:
            began, epoch = time.monotonic(), epoch + 1  # the machine was so late that no throttle time was left
        assert empty.session_id == first.session_id
        assert empty.error_code == 0
        assert 0 < empty.throttle_time_ms <= 1_600
        again = fetched(wire, "fetched", session_epoch=epoch + 1, session_id=first.session_id)
        assert time.monotonic() - began >= empty.throttle_time_ms / 1_000 - 0.01
        assert again.throttle_time_ms == 0
        assert again.responses[0].partitions[0].records
    with node.wire("reader") as wire:
        while (opening := fetched(wire, "fetched", session_epoch=0)).responses:
            pass  # as above: the machine was late
        assert (opening.session_id, opening.responses, opening.throttle_time_ms > 0) == (0, [], True)


@pytest.mark.parametrize(
    ("asked", "version"),
    [(ApiVersionsRequest(), 2), (MetadataRequest(topics=None), 12)],
    ids=["in an answer that is made for one client", "in the metadata of all topics, encoded for many"],
)
def test_time_of_the_broker_is_a_quota_too(node: Node, quota: SetQuota, asked: object, version: int) -> None:
    quota(client_id="busy", request_percentage=0.001)  # this share of a second is less than the time of one request
    with node.wire("busy") as wire:
        waits = [wire.request(asked, version).throttle_time_ms for _ in range(3)]
    assert max(waits) > 0
    assert max(waits) <= 1_000


def test_a_client_of_the_controllers_listener_has_its_quotas_too(node: Node, quota: SetQuota) -> None:
    quota(client_id="operator", request_percentage=0.001)
    metadata = [TopicDataRequest("__cluster_metadata", [PartitionIndex(0)])]
    with node.wire() as wire:
        port = wire.request(DescribeQuorumRequest(metadata), 2).nodes[0].listeners[0].port
    with Wire(port, client_id="operator") as wire:
        waits = [wire.request(DescribeClusterRequest(endpoint_type=2), 1).throttle_time_ms for _ in range(3)]
    assert 0 < max(waits) <= 1_000
    quota(client_id="creator", controller_mutation_rate=1)
    with Wire(port, client_id="creator") as wire:
        topic = CreatableTopic(name="made-at-the-controller", num_partitions=12, replication_factor=1)
        began = time.monotonic()
        answer = wire.request(CreateTopicsRequest(topics=[topic]), 5)
        wire.request(ApiVersionsRequest(), 0)
        assert time.monotonic() - began >= answer.throttle_time_ms / 1_000 - 0.01 > 0


def test_a_quota_of_the_user_holds_for_all_its_clients_and_the_more_exact_one_counts(
    node: Node, quota: SetQuota
) -> None:
    node.create("users")
    quota(user="ANONYMOUS", producer_byte_rate=20_000)
    quota(user="ANONYMOUS", client_id="free", producer_byte_rate=1e9)
    with node.wire("one") as one, node.wire("two") as two, node.wire("free") as free:
        assert one.request(produced("users", 400_000), 9).throttle_time_ms > 1_000 * TIMEOUT_S
        assert two.request(produced("users", 100), 9).throttle_time_ms > 0
        assert free.request(produced("users", 100_000), 9).throttle_time_ms == 0


def test_a_filter_finds_names_defaults_and_all_and_says_what_is_wrong(node: Node, quota: SetQuota) -> None:
    quota(user="f1", producer_byte_rate=1)
    quota(user=DEFAULT, client_id="f2", producer_byte_rate=2)

    def ask(*components: tuple[str, int, str | None], strict: bool = False) -> object:
        request = DescribeClientQuotasRequest(
            components=[ComponentData(entity_type=k, match_type=t, match=m) for k, t, m in components], strict=strict
        )
        with node.wire() as wire:
            answer = wire.request(request)
        if answer.error_code:
            return ErrorCode(answer.error_code)
        return sorted(value.value for entry in answer.entries for value in entry.values)

    assert ask() == [1, 2]
    assert ask(("user", 2, None)) == [1, 2]
    assert ask(("user", 2, None), strict=True) == [1]
    assert ask(("user", 1, None)) == [2]
    assert ask(("user", 0, "f1")) == [1]
    assert ask(("ip", 2, None)) == []
    assert ask(("group", 2, None)) == ErrorCode.UNSUPPORTED_VERSION
    for wrong in (
        [("", 2, None)],
        [("user", 0, None)],
        [("user", 1, "x")],
        [("user", 9, None)],
        [("user", 2, None), ("user", 2, None)],
        [("user", 2, None), ("ip", 2, None)],
    ):
        assert ask(*wrong) == ErrorCode.INVALID_REQUEST, wrong


def test_an_entitys_parts_and_values_are_in_kafkas_order_whatever_the_request_has(node: Node) -> None:
    values = {"producer_byte_rate": 1024.0, "request_percentage": 50.0, "consumer_byte_rate": 2048.0}
    parts = [EntityData("user", "in-order"), EntityData("client-id", "c")]
    request = AlterClientQuotasRequest([EntryDataRequest(parts, [OpData(key, value) for key, value in values.items()])])
    with node.wire() as wire:
        (altered,) = wire.request(request, 1).entries
        assert [part.entity_type for part in altered.entity] == ["client-id", "user"]
        asked = DescribeClientQuotasRequest([ComponentData("user", 0, "in-order")])
        eventually(lambda: bool(wire.request(asked, 1).entries), "the quotas to arrive")
        (described,) = wire.request(asked, 1).entries
        assert [part.entity_type for part in described.entity] == ["client-id", "user"]
        assert [value.key for value in described.values] == [
            "consumer_byte_rate", "request_percentage", "producer_byte_rate",
        ]  # fmt: skip


def test_quotas_outlive_a_restart(tmp_path: Path) -> None:
    node = start_node(tmp_path)
    try:
        alter(node, {"producer_byte_rate": 1_000.0}, client_id="kept")
    finally:
        stop_node(node)
    node = start_node(tmp_path)
    try:
        node.create("kept")
        assert described(node, client_id="kept") == {"producer_byte_rate": 1_000.0}
        with node.wire("kept") as wire:
            assert wire.request(produced("kept", 5_000), 9).throttle_time_ms > 1_000
    finally:
        stop_node(node)


@pytest.mark.compat
def test_stock_clients_keep_to_their_quotas_which_change_under_load(node: Node, quota: SetQuota) -> None:
    node.create("stock")
    quota(client_id="stock", producer_byte_rate=1_000_000)
    producer = Producer({"bootstrap.servers": node.bootstrap, "client.id": "stock", "queue.buffering.max.kbytes": 512})
    sent, over = [0], Event()

    def load() -> None:
        while not over.is_set():
            try:
                producer.produce("stock", bytes(10_000), on_delivery=delivered)
            except BufferError:
                producer.poll(0.01)
            producer.poll(0)

    def delivered(error: object, message: object) -> None:
        assert error is None
        sent[0] += 10_000

    def rate(seconds: float) -> float:
        before, began = sent[0], time.monotonic()
        time.sleep(seconds)
        return (sent[0] - before) / (time.monotonic() - began)

    thread = Thread(target=load)
    thread.start()
    try:
        eventually(lambda: sent[0] > 2_000_000, "the burst to be over")
        eventually(lambda: 0.7e6 < rate(3) < 1.3e6, "three seconds in which the machine is not late")
        alter(node, {"producer_byte_rate": 3e6}, client_id="stock")
        before = sent[0]
        eventually(lambda: sent[0] > before + 4_000_000, "the new quota to count")
        eventually(lambda: 2.1e6 < rate(3) < 3.9e6, "three seconds in which the machine is not late")
        alter(node, {"producer_byte_rate": None}, client_id="stock")
        eventually(lambda: rate(0.5) > 6e6, "no quota to count")
    finally:
        over.set()
        thread.join()
        producer.flush(10)
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "client.id": "stock",
            "group.id": "stock",
            "auto.offset.reset": "earliest",
        }
    )
    quota(client_id="stock", consumer_byte_rate=2_000_000)
    consumer.subscribe(["stock"])
    try:
        eventually(lambda: consumer.poll(1.0) is not None, "records")

        def received() -> float:
            began, size = time.monotonic(), 0
            while time.monotonic() - began < 4:
                size += sum(len(message.value() or b"") for message in consumer.consume(100, 0.1))
            return size / (time.monotonic() - began)

        # The burst and a second of prefetched records are included.
        eventually(lambda: 1.3e6 < received() < 3.2e6, "four seconds in which the machine is not late")
    finally:
        consumer.close()


def test_forwarded_requests_of_a_client_above_its_mutation_quota_are_refused(node: Node, quota: SetQuota) -> None:
    quota(client_id="mutator", controller_mutation_rate=1)
    quota(client_id="old mutator", controller_mutation_rate=1)

    def create(wire: Wire, name: str, partitions: int, version: int) -> tuple[ErrorCode, int]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        answer = wire.request(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), version)
        return ErrorCode(answer.topics[0].error_code), answer.throttle_time_ms

    with node.wire("mutator") as wire:
        assert create(wire, "m1", 20, 7) == (ErrorCode.NONE, 0)
        code, throttle_ms = create(wire, "m2", 1, 7)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 0 < throttle_ms <= 9_000
    with node.wire("old mutator") as wire:
        began = time.monotonic()
        code, throttle_ms = create(wire, "m3", 12, 5)
        assert code == ErrorCode.NONE, "versions before KIP-599 are served, and held back afterwards"
        assert throttle_ms > 0
        wire.request(ApiVersionsRequest(), 0)
        assert time.monotonic() - began >= throttle_ms / 1_000 - 0.01


def test_topics_that_a_metadata_request_creates_count_in_the_clients_mutation_quota(
    node: Node, quota: SetQuota
) -> None:
    """Before the fix the topics were requested in the broker's own name: three hundred were made in 0.4 s at a quota of one a
    second.
    """
    quota(client_id="asker", controller_mutation_rate=1)
    with node.wire("asker") as wire:
        names = [f"asked-{number}" for number in range(30)]
        asked = [MetadataRequestTopic(name=name) for name in names]
        answer = wire.request(MetadataRequest(topics=asked, allow_auto_topic_creation=True), 12)
        made = sum(topic.error_code == ErrorCode.NONE for topic in answer.topics)
        assert 0 < made < len(names)


def test_metrics_have_kafkas_names_and_say_who_is_throttled(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = start_node(tmp_path, ottla_admin_listener=f"127.0.0.1:{port}")
    try:
        node.create("measured")
        alter(node, {"producer_byte_rate": 1_000.0}, client_id="measured")
        eventually(lambda: described(node, client_id="measured"), "the quota to be published")
        with node.wire("measured") as wire:
            throttle_ms = wire.request(produced("measured", 3_000), 9).throttle_time_ms
        text = urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read().decode()
    finally:
        stop_node(node)
    labels = '{client_id="measured",user=""}'
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if labels in line)
    assert 0 < float(found[f"kafka_server_produce_byte_rate{labels}"]) < 350
    assert float(found[f"kafka_server_produce_throttle_time{labels}"]) == throttle_ms
    assert float(found[f"kafka_server_produce_throttled_total{labels}"]) == 1
