"""Apache Kafka with Aiven's RemoteStorageManager, and Ottla, go on with each other's remote segments.

The plug-in's jars are in no registry: OTTLA_RSM_CLASSPATH names those of its core and of its `filesystem` storage, or the classes compiled from
its sources.
"""

from __future__ import annotations

import os
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec

from ottla.server.config.rsm_settings import MANAGER_CLASS, RSM_CLASS
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.cluster.test_mixed import OF_BOTH
from tests.cluster.test_tiers import COUNT, create, local_start, numbers, offset, segments, write
from tests.cluster.test_tiers_of_kafka import apache_kafka, committed, paid
from tests.needs import needs_apache_kafka, skip_because

CLASSPATH = os.environ.get("OTTLA_RSM_CLASSPATH", "")
pytestmark = [pytest.mark.compat, needs_apache_kafka, pytest.mark.timeout(600)]
MISSING = None if CLASSPATH else "OTTLA_RSM_CLASSPATH does not name the jars of Aiven's RemoteStorageManager"
BACKEND = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"


def tiered_cluster(store: Path, compresses: str) -> Cluster:
    """One node whose properties both programs understand, with chunks of which a segment has some."""
    plugin = {
        MANAGER_CLASS: RSM_CLASS,
        "rsm.config.storage.backend.class": BACKEND,
        "rsm.config.storage.root": str(store),
        "rsm.config.storage.overwrite.enabled": "true",
        "rsm.config.chunk.size": "7000",
        "rsm.config.compression.enabled": compresses,
    }
    return Cluster(
        1,
        per_node={1: plugin},
        remote_log_storage_system_enable="true",
        rlmm_config_remote_log_metadata_topic_num_partitions="3",
        rlmm_config_remote_log_metadata_topic_replication_factor="1",
        remote_log_manager_task_interval_ms="200",
        log_retention_check_interval_ms="200",
        file_delete_delay_ms="0",
        **OF_BOTH,
    )


@pytest.mark.parametrize("compresses", ["false", "true"])
def test_each_goes_on_with_what_the_other_stored(tmp_path: Path, compresses: str) -> None:
    skip_because(MISSING)
    store = tmp_path / "store"
    store.mkdir()
    with tiered_cluster(store, compresses) as cluster:

        def write_all(first: int, transactions: int) -> list[int]:
            write(cluster, "events", first, COUNT)
            kept = paid(cluster, "paid", transactions, 60)
            for topic in ("events", "paid"):
                eventually(
                    lambda topic=topic: len(segments(cluster, topic)) == 1,
                    f"the active segment of {topic} alone is here",
                    120,
                )
            return kept

        def check(count: int, kept: list[int]) -> None:
            assert numbers(cluster, "events", count) == list(range(count))
            assert committed(cluster, "paid", len(kept)) == kept
            for number in (0, 37, local_start(cluster, "events") - 1, count - 1):
                assert offset(cluster, "events", OffsetSpec.for_timestamp(1_700_000_000_000 + number * 1_000)) == number

        create(cluster, "events")
        create(cluster, "paid")
        kept = write_all(0, 0)
        cluster.stop(1)
        with apache_kafka(cluster, store, plugin=CLASSPATH, **{MANAGER_CLASS.replace(".", "_"): RSM_CLASS}):
            check(COUNT, kept)
            kept += write_all(COUNT, 60)
            check(2 * COUNT, kept)
        cluster.start(1)
        check(2 * COUNT, kept)

        # What the plug-in has stored is deleted here, too.
        gone = confluent_kafka.TopicPartition("events", 0, COUNT + COUNT // 2)
        admin = AdminClient(cluster.client_settings)
        admin.delete_records([gone])[gone].result(30)
        eventually(
            lambda: all(int(path.name[:20]) >= COUNT for path in store.rglob("events-*/0/*")),
            "segments leave the store",
            60,
        )
