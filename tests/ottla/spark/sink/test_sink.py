"""The exactly-once sink without Spark: its tasks and its driver as functions, killed at every step, on the test's own node."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.protocol.messages.list_transactions import ListTransactionsResponse, TransactionState
from ottla.spark.client.cluster import BlockingCluster as Client
from ottla.spark.client.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from ottla.spark.client.producer import end
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions
from ottla.spark.ranges import Range
from ottla.spark.reader import read_range
from ottla.spark.sink import commit as driver
from ottla.spark.sink.decisions import Decisions
from ottla.spark.sink.options import BATCHES_TOPIC, SinkOptions
from ottla.spark.sink.task import Place, PreparedTask, write
from ottla.testing import Cluster

SCHEMA = StructType([StructField("key", BinaryType()), StructField("value", BinaryType())])
names = (f"t{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(1, properties={"group.initial.rebalance.delay.ms": "0"}) as found:
        yield found


class Sink:
    """A sink to a topic with two partitions, and the values there that read_committed sees."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self.topic = next(names)
        self.bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        for future in admin.create_topics([NewTopic(self.topic, 2, 1)]).values():
            future.result(20)
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": self.topic, "kafka.compression.type": "lz4"}
        self.options = SinkOptions(given, SCHEMA, is_stream=True)

    def task(self, batch: int, partition: int, run: str = "run1", attempt: int = 0, rows: int = 3) -> PreparedTask:
        keys = [b"%d-%d-%d" % (batch, partition, number) for number in range(rows)]
        data = pa.record_batch({"key": pa.array(keys, pa.binary()), "value": pa.array(keys, pa.binary())})
        return write(self.options, [data] if rows else [], Place(batch, self.topic, run, partition, attempt))

    def tasks(self, batch: int, run: str = "run1", count: int = 2) -> list[PreparedTask | None]:
        return [self.task(batch, partition, run) for partition in range(count)]

    def commit(self, messages: list[PreparedTask | None], batch: int) -> None:
        driver.commit(self.options, messages, batch)

    def values(self, isolation: str = "read_committed") -> list[bytes]:
        options = ConnectorOptions(
            {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.topic, "kafka.isolation.level": isolation}
        )
        from ottla.spark.planning import batch_ranges

        with Client(options.client) as client:
            ranges: list[Range] = batch_ranges(client, options)
        found: list[Any] = [
            row
            for each in ranges
            for part in read_range(options, each, options.columns)
            for row in part["value"].to_pylist()
        ]
        return sorted(found)

    def expected(self, batches: int, tasks: int = 2) -> list[bytes]:
        return sorted(b"%d-%d-%d" % each for each in itertools.product(range(batches), range(tasks), range(3)))


@pytest.fixture
def sink(cluster: Cluster) -> Sink:
    return Sink(cluster)


def test_batches_are_seen_when_they_are_committed_and_not_before(sink: Sink) -> None:
    for batch in range(3):
        messages = sink.tasks(batch)
        assert sink.values() == sink.expected(batch)
        sink.commit(messages, batch)
    assert sink.values() == sink.expected(3)


def test_a_batch_without_rows_needs_no_decision(sink: Sink) -> None:
    sink.commit([sink.task(0, 0, rows=0), None], 0)
    assert sink.values() == []


def test_a_task_that_ran_twice_counts_once(sink: Sink) -> None:
    sink.task(0, 0)  # its executor dies before Spark gets the message
    messages = [sink.task(0, 0, attempt=1), sink.task(0, 1)]
    sink.commit(messages, 0)
    assert sink.values() == sink.expected(1), "what the dead attempt left open is aborted, and holds back no reader"


def is_stable(sink: Sink) -> bool:
    """No open transaction delays readers."""
    places = {(sink.topic, 0): LATEST, (sink.topic, 1): LATEST}
    with Client(sink.options.client) as client:
        committed, all_ = (list_offsets(client, places, level) for level in (READ_COMMITTED, READ_UNCOMMITTED))
    return committed == all_


def test_the_slower_of_two_attempts_is_aborted_in_each_batch(sink: Sink) -> None:
    for batch in range(2):
        messages = sink.tasks(batch)
        sink.task(batch, 1, attempt=1)  # Spark runs it beside the first one, and kills it when that is done
        sink.commit(messages, batch)
        assert is_stable(sink)
    assert sink.values() == sink.expected(2)


def test_a_batch_that_is_stopped_leaves_no_task_open(sink: Sink) -> None:
    messages = [sink.task(0, 0), None]
    sink.task(0, 1)  # its message never arrived
    driver.abort(sink.options, messages, 0)
    assert is_stable(sink) and sink.values() == []


def test_a_driver_that_dies_before_the_decision_leaves_nothing(sink: Sink) -> None:
    sink.tasks(0)
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def killed_after_the_decision(sink: Sink, monkeypatch: pytest.MonkeyPatch, *, committed: int) -> None:
    """Decide batch 0, and commit the transactions of this many tasks."""
    messages = sink.tasks(0)

    def dies(cluster: Client, decided: Any) -> None:
        for number in range(committed):
            assert end(cluster, decided.prepared[number].transaction, commit=True)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(driver, "_commit_all", dies)
        with pytest.raises(KeyboardInterrupt):
            sink.commit(messages, 0)


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_driver_that_dies_after_the_decision_is_finished_by_the_next(
    sink: Sink, monkeypatch: pytest.MonkeyPatch, committed: int
) -> None:
    killed_after_the_decision(sink, monkeypatch, committed=committed)
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)
    sink.commit(sink.tasks(1, "run2"), 1)
    assert sink.values() == sink.expected(2)


def test_a_batch_that_is_run_with_another_number_of_partitions_is_not_written_twice(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after_the_decision(sink, monkeypatch, committed=1)
    sink.commit(sink.tasks(0, "run2", count=5), 0)
    assert sink.values() == sink.expected(1)


def test_a_decided_transaction_that_timed_out_is_written_again(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_after_the_decision(sink, monkeypatch, committed=1)
    with Client(sink.options.client) as client:
        last = Decisions(client, BATCHES_TOPIC, sink.topic).last()
        assert last is not None and end(client, last.prepared[1].transaction, commit=False)  # as the timeout would
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def test_of_two_runs_that_write_a_lost_transaction_again_one_counts(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after_the_decision(sink, monkeypatch, committed=1)
    with Client(sink.options.client) as client:
        last = Decisions(client, BATCHES_TOPIC, sink.topic).last()
        assert last is not None and end(client, last.prepared[1].transaction, commit=False)
    one, other = sink.tasks(0, "run2"), sink.tasks(0, "run3")
    with monkeypatch.context() as patched:
        patched.setattr(driver, "abort_left_over", lambda *_: None)  # it is killed before that
        sink.commit(one, 0)
    sink.commit(other, 0)
    assert sink.values() == sink.expected(1)


def test_what_a_driver_has_listed_as_open_and_another_commits_meanwhile_is_not_written_again(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = sink.tasks(0)
    listed = [TransactionState(each.written.transaction.transactional_id) for each in messages if each and each.written]
    sink.commit(messages, 0)
    with Client(sink.options.client) as client:
        client.topics([])
        monkeypatch.setattr(client, "call_node", lambda *_: ListTransactionsResponse(transaction_states=listed))
        driver.abort_left_over(client, f"{sink.options.id_prefix}{sink.topic}/")
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def test_a_transaction_that_timed_out_before_the_decision_fails_the_batch(sink: Sink) -> None:
    messages = sink.tasks(0)
    with Client(sink.options.client) as client:
        assert messages[0] is not None and messages[0].written is not None
        assert end(client, messages[0].written.transaction, commit=False)
    with pytest.raises(ConnectorError, match="has ended before its batch was complete"):
        sink.commit(messages, 0)
    driver.abort(sink.options, messages, 0)
    assert sink.values() == [] and sink.values("read_uncommitted") != []
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def test_of_two_drivers_with_the_same_batch_one_wins(sink: Sink) -> None:
    one, other = sink.tasks(0, "run1"), sink.tasks(0, "run2")
    sink.commit(one, 0)
    sink.commit(other, 0)
    assert sink.values() == sink.expected(1)


def test_a_query_that_is_a_batch_behind_another_on_its_checkpoint_writes_nothing_again(sink: Sink) -> None:
    sink.commit(sink.tasks(0, "ahead"), 0)
    next_batch = sink.tasks(1, "ahead")  # its tasks use the same transactional ids, and fence the producers of batch 0
    behind = sink.tasks(0, "behind")
    assert [each.written for each in behind if each] == [None, None]
    sink.commit(behind, 0)
    assert sink.values() == sink.expected(1)
    with pytest.raises(ConnectorError):
        sink.commit(next_batch, 1)  # the query that was behind has taken these transactions for leftovers
    sink.commit(sink.tasks(1, "later"), 1)
    assert sink.values() == sink.expected(2)


def test_a_query_that_is_behind_writes_again_what_was_lost(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_after_the_decision(sink, monkeypatch, committed=1)
    with Client(sink.options.client) as client:
        last = Decisions(client, BATCHES_TOPIC, sink.topic).last()
        assert last is not None and end(client, last.prepared[1].transaction, commit=False)
    sink.tasks(1)  # the ids of the committed and of the lost transaction are used again
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def test_a_driver_that_was_claimed_away_decides_nothing(sink: Sink) -> None:
    messages = sink.tasks(0)
    with Client(sink.options.client) as client, Client(sink.options.client) as later:
        claim = driver._claim(client, sink.options, sink.topic)
        driver._claim(later, sink.options, sink.topic)
        prepared = {each.place.partition: each.written for each in messages if each and each.written}
        with pytest.raises(ConnectorError):
            claim.write(driver.SinkDecision(0, "run1", prepared), 0)
        assert Decisions(later, BATCHES_TOPIC, sink.topic).last() is None


def test_an_abort_after_the_decision_takes_nothing_back(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = sink.tasks(0)
    with monkeypatch.context() as patched:
        patched.setattr(driver, "_commit_all", lambda *_: (_ for _ in ()).throw(ConnectorError("the broker is away")))
        with pytest.raises(ConnectorError):
            sink.commit(messages, 0)
    driver.abort(sink.options, messages, 0)
    sink.commit(sink.tasks(0, "run2"), 0)
    assert sink.values() == sink.expected(1)


def test_the_topic_of_batches_may_be_read_behind_an_open_transaction_of_another_sink(cluster: Cluster) -> None:
    one, other = Sink(cluster), Sink(cluster)
    with Client(other.options.client) as client:
        claim = driver._claim(client, other.options, other.topic)
        claim._producer.add((BATCHES_TOPIC, 0), (other.topic.encode(), b"{}", 0, ()))
        claim._producer.flush()  # and its driver is killed
        one.commit(one.tasks(0), 0)
        one.commit(one.tasks(0, "run2"), 0)
    assert one.values() == one.expected(1)


def test_a_write_without_a_batch_number_is_committed_as_a_whole(sink: Sink) -> None:
    messages: list[PreparedTask | None] = [sink.task(-1, partition) for partition in range(2)]
    assert sink.values() == []
    sink.commit(messages, 0)
    assert len(sink.values()) == 6


def test_rows_without_keys_of_small_batches_go_to_all_partitions(sink: Sink) -> None:
    data = pa.record_batch({"key": pa.nulls(1, pa.binary()), "value": pa.array([b"v"], pa.binary())})
    for batch in range(2):
        sink.commit([write(sink.options, [data], Place(batch, sink.topic, "run1", 0, 0))], batch)
    with Client(sink.options.client) as client:
        ends = list_offsets(client, {(sink.topic, 0): LATEST, (sink.topic, 1): LATEST}, READ_COMMITTED)
    assert set(ends.values()) == {2}, "a record and its marker in each"
