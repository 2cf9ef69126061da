"""Topics, records in and records out, without a client library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client.errors import Failure
from ottla.testing import Cluster
from ottla.testing.attached import Attached
from ottla.testing.clients import read_seed

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


def test_an_attached_cluster_has_a_clients_verbs_and_says_who_may_break_nodes(cluster: Cluster) -> None:
    attached = Attached(cluster.bootstrap)
    attached.topic("attached", seed=["x"])
    assert attached.leaders("attached") == {0: 1} and attached.wait_isr("attached") >= 0
    consumer = attached.consumer("attached")
    message = consumer.poll(30)
    consumer.close()
    assert message is not None and message.value() == b"x"
    with pytest.raises(AttributeError, match="shared with other tests"):
        attached.kill(1)
    with pytest.raises(AttributeError, match="no killer"):
        attached.killer()


def test_a_secure_cluster_is_used_by_its_super_user() -> None:
    with Cluster(1, secure=True) as secure:
        secure.topic("secured", seed=["x"])
        assert [each.value for each in secure.records("secured")] == [b"x"]
        attached = Attached(secure.bootstrap, secure.client_settings, secure.client_file)
        assert [each.value for each in attached.records("secured", 1)] == [b"x"]
