"""Kafka Streams, `ottla mirror` and MirrorMaker, which is Kafka Connect, take each record of a topic whose first segments are in the store alone (KIP-405)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource

from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.chaos.word_counts import QUICK, SOURCE
from tests.clients.test_tiered_reads import Written, written_remotely
from tests.cluster.test_tiers import VALUE, tiered_cluster
from tests.compat.mirror import mirror_maker
from tests.needs import needs_apache_kafka
from tests.ottla.conftest import run_here
from tools.apache_kafka import java_command
from tools.apache_kafka.jars import streams_classpath
from tools.apache_kafka.programs import compiled

pytestmark = [pytest.mark.compat, pytest.mark.timeout(400)]

TOPIC, COUNTS = "paid", "counts"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with tiered_cluster(1, tmp_path_factory.mktemp("store"), **QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def written(cluster: Cluster) -> Written:
    return written_remotely(cluster, TOPIC)


@needs_apache_kafka
def test_a_streams_application_counts_each_committed_record_once(
    cluster: Cluster, written: Written, tmp_path: Path
) -> None:
    cluster.topic(COUNTS, partitions=1)
    jars = streams_classpath()
    command = java_command(
        SOURCE.stem, cluster.bootstrap, "counter", TOPIC, COUNTS, str(tmp_path / "state"), "1",
        extra_classpath=f"{compiled(SOURCE, jars)}:{jars}",
    )  # fmt: skip
    with (tmp_path / "streams.log").open("wb") as log:
        application = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            eventually(lambda: len(cluster.records(COUNTS)) >= len(written.records), "each record is counted", 180)
        finally:
            application.kill()
            application.wait()
    counted = {(record.key, record.value) for record in cluster.records(COUNTS)}
    assert counted == {(value + VALUE, b"1") for value in written.records.values()}


def test_a_mirror_copies_each_committed_record_to_a_cluster_without_remote_storage(
    cluster: Cluster, written: Written
) -> None:
    with Cluster(1) as target:
        sides = ["-b", cluster.bootstrap, "--to", target.bootstrap]
        done = run_here("mirror", "run", "west", "east", *sides, "--topics", TOPIC, "--no-heartbeats", "--once")
        assert done.code == 0, done.err
        copied = target.records(f"west.{TOPIC}")
        assert [record.value for record in copied] == [value + VALUE for _, value in written.from_offset(0)]
        asked = ConfigResource(ConfigResource.Type.TOPIC, f"west.{TOPIC}")
        admin = AdminClient(target.client_settings)
        configs = admin.describe_configs([asked])[asked].result(30)
        assert configs["remote.storage.enable"].value == "false"
        assert configs["retention.ms"].value == "-1"


@needs_apache_kafka
def test_mirror_maker_copies_each_committed_record(cluster: Cluster, written: Written, tmp_path: Path) -> None:
    """It copies the settings of topics, too, but for those that its configuration excludes: the target has no remote storage."""
    wanted = [value + VALUE for _, value in written.from_offset(0)]
    with (
        Cluster(1) as target,
        mirror_maker(tmp_path, cluster, target, TOPIC, "config.properties.exclude = remote.*, local.*\n"),
    ):

        def is_copied() -> bool:
            there = f"west.{TOPIC}" in {topic.name for topic in target.metadata().topics}
            return there and len(target.records(f"west.{TOPIC}")) >= len(wanted)

        eventually(is_copied, "each record is copied", 180)
        assert [record.value for record in target.records(f"west.{TOPIC}")] == wanted
