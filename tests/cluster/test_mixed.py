"""A node of Apache Kafka and two of Ottla in one quorum and one ISR: the short form of `make compat ARGS=mixed`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.testing import Cluster
from tests.chaos.history import ONE_IN_FLIGHT, TOPIC, Load, create_topic, judge, read_everything
from tests.effort import SHORT_SESSIONS
from tests.needs import needs_apache_kafka
from tools.apache_kafka import TOOLS, java_command

#: Properties that Ottla assumes and Kafka requires, and the newest release that both know.
OF_BOTH = {
    "process_roles": "broker,controller",
    "controller_listener_names": "CONTROLLER",
    "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "ottla_advertised_release": "4.3.1",
}
#: A topic with some partitions on node 1 only.
ALONE = "alone"
#: The rate of records: requests are always in flight, and the start of a JVM uses the processor.
PER_SECOND = 100
IN_SYNC_SECONDS_MAX = 120


@contextmanager
def apache_kafka(cluster: Cluster, node_id: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run the node as Apache Kafka, on its directory and with its properties."""
    file = Path(cluster.nodes[node_id].dir) / "kafka.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in cluster._properties[node_id].items()))
    process = subprocess.Popen(java_command(TOOLS["kafka-server-start"], str(file)), stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.compat
@needs_apache_kafka
@pytest.mark.timeout(240)
def test_a_killed_node_goes_on_as_apache_kafka_and_nodes_of_both_kinds_are_killed_and_nothing_is_lost() -> None:
    """An idempotent producer writes meanwhile. Kafka opens the logs that the kill left, and has the records that only node 1
    had.
    """
    with Cluster(3, **OF_BOTH, **SHORT_SESSIONS) as cluster:
        create_topic(cluster.bootstrap, 3, min_insync_replicas="2")
        create_topic(cluster.bootstrap, 1, ALONE)
        load, alone = (
            Load(cluster.bootstrap, topic=topic, per_second=PER_SECOND, settings=ONE_IN_FLIGHT)
            for topic in (TOPIC, ALONE)
        )
        alone.wait_for_acknowledgements(100)
        alone.stop()
        load.wait_for_acknowledgements(100)
        cluster.kill(1)
        logs = [path.read_bytes() for path in Path(cluster.nodes[1].data_dir).glob(f"{ALONE}-*/*.log")]
        assert logs and all(log.endswith(bytes(1000)) for log in logs), "nothing is allocated ahead"
        with apache_kafka(cluster, 1) as kafka:
            cluster.wait_isr(TOPIC, seconds=IN_SYNC_SECONDS_MAX)
            assert judge([alone], read_everything(cluster.bootstrap, ALONE, leaders_change=True)) == []
            cluster.kill(2)
            load.wait_for_acknowledgements(100)
            cluster.start(2)
            cluster.wait_isr(TOPIC, seconds=IN_SYNC_SECONDS_MAX)
            kafka.kill()
            load.wait_for_acknowledgements(100)
        load.stop()
        assert judge([load], read_everything(cluster.bootstrap, leaders_change=True)) == []
