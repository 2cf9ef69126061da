"""The table of a topic whose old segments are in remote storage alone (KIP-405) has all records since the log start."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.needs import needs_packages

needs_packages("pyarrow", "pyiceberg", "deltalake", "obstore")

from confluent_kafka import Producer

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.test_tiers import TIERED, alter, local_start, tiered_cluster
from tests.ottla.tables.test_broker_tables import FAST, READERS, wait_for_rows, write

COUNT = 400
PADDING = "." * 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_cluster(1, tmp_path_factory.mktemp("store")) as running:
        yield running


def fill(cluster: Cluster, topic: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 1})
    for number in range(first, first + COUNT):
        producer.produce(topic, f"value {number}{PADDING}", f"key {number}", partition=number % 2)
        if number % 10 == 9:
            producer.flush()
    producer.flush()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("format_", READERS)
def test_a_table_that_is_turned_on_later_has_what_is_only_in_the_store(cluster: Cluster, format_: str) -> None:
    cluster.topic(format_, partitions=2, configs=TIERED | FAST)
    fill(cluster, format_, 0)
    write(cluster, format_, 0)  # a transaction that commits, and one that aborts
    fill(cluster, format_, COUNT)
    eventually(lambda: local_start(cluster, format_) > COUNT // 2 + 5, "the transactions have left the disk", 60)
    alter(cluster, format_, "ottla.table.format", format_)
    found = wait_for_rows(cluster, format_, format_, 2 * COUNT + 1)
    read = {(record.partition, record.offset): record.value for record in cluster.records(format_, 2 * COUNT + 1)}
    assert found == read
    alter(cluster, format_, "ottla.table.format", "none")
    fill(cluster, format_, 2 * COUNT)  # the table falls behind, and the records leave the disk meanwhile
    eventually(lambda: local_start(cluster, format_) > COUNT + 5, "more records have left the disk", 60)
    alter(cluster, format_, "ottla.table.format", format_)
    found = wait_for_rows(cluster, format_, format_, 3 * COUNT + 1)
    assert found == {
        (record.partition, record.offset): record.value for record in cluster.records(format_, 3 * COUNT + 1)
    }
