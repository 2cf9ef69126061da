"""Creating topics, writing records and reading them, without a client library."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.failures import Failure
from ottla.testing import Cluster
from ottla.testing.attached import Attached
from ottla.testing.clients import read_seed
from ottla.testing.errors import ClientMissing, MadeOtherwise, SharedWithOthers, TooFewNodes

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, auto_create_topics_enable="false") as running:
        yield running


def test_a_topic_with_a_seed_has_its_records_where_their_keys_and_rows_say(cluster: Cluster) -> None:
    rows = [
        b"alone",
        ("k", "of a key"),
        (b"k", b"again"),
        {"key": "r", "value": {"n": 1}, "partition": 2, "headers": {"h": "x"}},
    ]
    name = cluster.topic("seeded", partitions=3, configs={"retention.ms": "-1"}, seed=rows)
    seen = cluster.records(name, 4)
    assert sorted((each.key or b"", each.value) for each in seen) == [
        (b"", b"alone"),
        (b"k", b"again"),
        (b"k", b"of a key"),
        (b"r", b'{"n":1}'),
    ]
    (row,) = [each for each in seen if each.key == b"r"]
    assert (row.partition, row.headers) == (2, (("h", b"x"),))
    assert len({each.partition for each in seen if each.key == b"k"}) == 1


def test_a_seed_is_a_file_of_rows_as_consume_prints_them(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"key": "1", "value": "3 apples", "offset": 7, "topic": "of-yesterday"}\n{"value": null}\n')
    cluster.topic("from-file", seed=file)
    assert [(each.key, each.value) for each in cluster.records("from-file")] == [(b"1", b"3 apples"), (None, None)]


def test_records_are_those_that_are_there_or_those_that_come(cluster: Cluster) -> None:
    cluster.topic("read")
    assert cluster.records("read") == []
    cluster.write("read", ["a", "b", "c"])
    assert [each.value for each in cluster.records("read")] == [b"a", b"b", b"c"]
    assert [each.value for each in cluster.records("read", 2)] == [b"a", b"b"]
    # On a busy machine half a second may not be enough to read any of them.
    assert any(
        f"read has 3 records after {seconds} s, not 4" in refusal(cluster, seconds) for seconds in (0.5, 5.0, 30.0)
    )


def refusal(cluster: Cluster, seconds: float) -> str:
    with pytest.raises(TimeoutError) as refused:
        cluster.records("read", 4, seconds=seconds)
    return str(refused.value)


def test_records_of_an_open_transaction_are_left_out(cluster: Cluster) -> None:
    cluster.topic("transacted", seed=["before"])
    producer = cluster.producer(transactional_id="t")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("transacted", b"open")
    producer.flush(30)
    assert [each.value for each in cluster.records("transacted")] == [b"before"]
    producer.commit_transaction(30)
    assert [each.value for each in cluster.records("transacted", 2)] == [b"before", b"open"]


def test_what_the_cluster_refuses_is_said(cluster: Cluster) -> None:
    cluster.topic("there")
    with pytest.raises(Failure, match="there"):
        cluster.topic("there")
    with pytest.raises(Failure, match="unknown-setting"):
        cluster.topic("other", configs={"unknown-setting": "1"})
    with pytest.raises(Failure, match="missing"):
        cluster.records("missing")


@pytest.mark.parametrize(
    "seed, said", [([b"x", 5], "row 2 of the seed: bytes or str"), ([{"valeu": "x"}], "unknown field 'valeu'")]
)
def test_a_row_that_is_none_is_named(seed: list[object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(read_seed(seed))


def test_a_line_that_is_no_row_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "orders.jsonl").write_text('{"value": "x"}\nnot json\n')
    with pytest.raises(ValueError, match=r"row 2 of .*orders\.jsonl: not JSON"):
        list(read_seed(tmp_path / "orders.jsonl"))


async def test_an_event_loop_of_the_test_is_not_in_the_way(cluster: Cluster) -> None:
    cluster.topic("in-a-loop", seed=["x"])
    assert [each.value for each in cluster.records("in-a-loop")] == [b"x"]


def test_an_attached_cluster_has_a_clients_verbs(cluster: Cluster) -> None:
    attached = Attached(cluster.bootstrap)
    attached.topic("attached", seed=["x"])
    assert attached.leaders("attached") == {0: 1} and attached.wait_isr("attached") >= 0
    consumer = attached.consumer("attached")
    message = consumer.poll(30)
    consumer.close()
    assert message is not None and message.value() == b"x"


def test_a_secure_cluster_is_used_by_its_super_user() -> None:
    with Cluster(1, secure=True) as secure:
        secure.topic("secured", seed=["x"])
        assert [each.value for each in secure.records("secured")] == [b"x"]
        attached = Attached(secure.bootstrap, secure.client_settings, secure.client_file)
        assert [each.value for each in attached.records("secured", 1)] == [b"x"]


def test_records_wait_for_a_topic_that_is_created_meanwhile_and_say_if_none_was(cluster: Cluster) -> None:
    creating = threading.Timer(0.2, cluster.topic, ["created-late"], {"seed": ["x"]})
    creating.start()
    assert [each.value for each in cluster.records("created-late", 1)] == [b"x"]
    creating.join()
    with pytest.raises(TimeoutError, match=r"never is no topic, and so has no records, after 0.5 s, not 1"):
        cluster.records("never", 1, seconds=0.5)
    with pytest.raises(Failure, match="never"):
        cluster.records("never")


def test_more_replicas_than_nodes_are_refused_with_what_to_do(cluster: Cluster) -> None:
    with pytest.raises(TooFewNodes, match=r"cannot have 3 replicas, because 1 of .* factories.kafka_cluster\(3\)"):
        cluster.topic("of-three", replicas=3)


def test_without_the_client_library_the_error_names_the_extra_that_brings_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(ClientMissing, match=r"confluent-kafka is not installed.*pip install .* installs it"):
        cluster.producer()


def test_a_cluster_that_another_process_has_started_has_no_faults_and_no_users_that_could_be_made() -> None:
    attached = Attached("127.0.0.1:1")
    with pytest.raises(SharedWithOthers, match=r"kill: this process has not started this cluster.*kafka_to_break"):
        attached.kill(1)
    with pytest.raises(SharedWithOthers, match="nodes: "):
        hasattr(attached, "nodes")  # swallowing this error would hide that a test may not do it
    with pytest.raises(MadeOtherwise, match="ottla user create"):
        attached.add_user("alice")
    with pytest.raises(AttributeError, match="Attached has no kil"):
        attached.kil(1)
    assert abs(attached.time_ms / 1000 - time.time()) < 60
