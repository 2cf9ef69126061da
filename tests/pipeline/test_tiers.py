"""Spark's own Kafka source and `format("ottla")` read a topic whose first segments are in the store alone (KIP-405)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.needs import needs_packages

needs_packages("pyspark", "pyarrow")

from ottla.spark import register
from ottla.testing import Cluster
from tests.clients.test_tiered_reads import FIRST_MS, Found, Written, written_remotely
from tests.cluster.test_tiers import tiered_cluster

pytestmark = [pytest.mark.compat, pytest.mark.timeout(600)]

TOPIC = "paid"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_cluster(1, tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Written:
    return written_remotely(cluster, TOPIC)


def options(cluster: Cluster, source: str, **more: str) -> dict[str, str]:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": TOPIC,
        "kafka.isolation.level": "read_committed",
    }
    if source == "segments":
        given["segments"] = f"segments://{cluster.node(1).data_dir}"
    return given | more


def found_in(frame: Any) -> Found:
    return sorted((row.offset, bytes(row.value[:6])) for row in frame.select("offset", "value").collect())


@pytest.mark.parametrize("source", ["kafka", "ottla", "segments"])
def test_batches_and_streams_have_each_committed_record(
    spark: Any, cluster: Cluster, written: Written, source: str, tmp_path: Path
) -> None:
    register(spark)
    name = "kafka" if source == "kafka" else "ottla"
    whole = spark.read.format(name).options(**options(cluster, source, startingOffsets="earliest")).load()
    assert found_in(whole) == written.from_offset(0)

    middle, value = written.from_offset(written.end // 3)[0]
    since = options(cluster, source, startingTimestamp=str(FIRST_MS + int(value)))
    assert found_in(spark.read.format(name).options(**since).load()) == written.from_offset(middle)

    stream = spark.readStream.format(name).options(**options(cluster, source, startingOffsets="earliest")).load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert found_in(spark.read.parquet(str(tmp_path / "rows"))) == written.from_offset(0)
