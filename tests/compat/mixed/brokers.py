"""Brokers of both kinds at a controller of either kind."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.compat.mixed import clients
from tests.compat.mixed.nodes import HOST, KAFKA, OTTLA, Mixed, Node, NotSo, tool, until

CONTROLLER, KAFKAS, OTTLAS = 1, 2, 3
BOTH = (KAFKAS, OTTLAS)
TOPIC, BROKER = 2, 4
#: Batches of one small record each, as an idle quorum writes two a second.
IDLE_BATCHES = 3_000


def beside(mixed: Mixed, controller: str) -> tuple[Node, Node, Node]:
    """Run a controller alone, with one broker of Apache Kafka and one of Ottla."""
    started = (
        mixed.add(controller, CONTROLLER, "controller").start(),
        mixed.add(KAFKA, KAFKAS, "broker").start(),
        mixed.add(OTTLA, OTTLAS, "broker").start(),
    )
    mixed.wait_brokers(*BOTH)
    return started


def set_min_isr(mixed: Mixed, resource_type: int, name: str, value: int) -> None:
    change = AlterableConfig("min.insync.replicas", 0, str(value))
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, [change])])
    (answer,) = mixed.request(request, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1).responses
    if answer.error_code != ErrorCode.NONE:
        raise NotSo(f"min.insync.replicas of {name!r}: {answer.error_message}")


def lose_nothing(directory: Path, controller_kind: str) -> None:
    """Each kind follows the other in the ISR, with transactions and groups, while nodes are killed, are stopped in order, and
    the controller ends.
    """
    with Mixed(directory, [CONTROLLER], offsets_topic_replication_factor=2) as mixed:
        controller, kafka, ottla = beside(mixed, controller_kind)
        written: dict[str, list[str]] = {}
        for topic, leader, follower in (("by-kafka", kafka, ottla), ("by-ottla", ottla, kafka)):
            mixed.create(topic, [[leader.id, follower.id]], min_insync_replicas=2)
            mixed.wait_isr(topic, BOTH, leader.id)
            values, committed = [f"m{i}" for i in range(2_000)], [f"t{i}" for i in range(50)]
            clients.produce(leader.bootstrap, topic, values)
            clients.transact(follower.bootstrap, topic, committed, f"id-{topic}")
            written[topic] = values + committed
            clients.check(follower.bootstrap, topic, written[topic])
            clients.check_by_group(leader.bootstrap, topic, f"group-{topic}", written[topic])
        for end in (Node.kill, Node.stop):
            for leaving, staying in ((kafka, ottla), (ottla, kafka)):
                end(leaving)
                for topic in written:
                    mixed.wait_isr(topic, [staying.id], staying.id)
                leaving.start()
                for topic in written:
                    mixed.wait_isr(topic, BOTH)
                    more = [f"after {len(written[topic])} {i}" for i in range(100)]
                    clients.produce(staying.bootstrap, topic, more)
                    written[topic] += more
                    clients.check(staying.bootstrap, topic, written[topic])
                    clients.check_by_group(mixed.bootstrap, topic, f"group-{topic}", more)
        controller.kill()
        clients.produce(mixed.bootstrap, "by-kafka", ["without a controller"])
        controller.start()
        mixed.create("later", [BOTH])
        mixed.wait_isr("later", BOTH)
        clients.check(mixed.bootstrap, "by-kafka", [*written["by-kafka"], "without a controller"])


def join_again_after_min_isr(directory: Path, controller_kind: str) -> None:
    """min.insync.replicas is altered while a partition has an ELR: controller and leader still agree about the partition epoch.

    Kafka's controllers write a ClearElrRecord, which changes the epoch of each partition that has an ELR; Ottla's change the
    partitions themselves. The leader is of the other kind than the controller.
    """
    with Mixed(directory, [CONTROLLER]) as mixed:
        _, kafka, ottla = beside(mixed, controller_kind)
        leader, follower = (kafka, ottla) if controller_kind == OTTLA else (ottla, kafka)
        for topic in ("altered", "other"):
            mixed.create(topic, [[leader.id, follower.id]], min_insync_replicas=2)
            mixed.wait_isr(topic, BOTH, leader.id)
        follower.kill()
        for topic in ("altered", "other"):
            mixed.wait_isr(topic, [leader.id], leader.id)
        set_min_isr(mixed, TOPIC, "altered", 1)
        for _ in range(2):
            follower.start()
            for topic in ("altered", "other"):
                mixed.wait_isr(topic, BOTH, leader.id)
            clients.produce(mixed.bootstrap, "altered", ["both"])
            follower.kill()
            clients.produce(mixed.bootstrap, "altered", ["the leader alone"])
        clients.check(mixed.bootstrap, "altered", ["both", "the leader alone"] * 2)


def lead_again_after_min_isr(directory: Path, broker_kind: str) -> None:
    """min.insync.replicas is altered while the broker of the only replica is stopped; the broker leads again when it is back.

    At a controller of Apache Kafka 4.3.1 the partition stays offline (docs/DIFFERENCES.md).
    """
    with Mixed(directory, [CONTROLLER]) as mixed:
        _, kafka, ottla = beside(mixed, OTTLA)
        restarted = kafka if broker_kind == KAFKA else ottla
        mixed.create("single", [[restarted.id]])
        mixed.wait_isr("single", [restarted.id], restarted.id)
        clients.produce(mixed.bootstrap, "single", ["kept"])
        restarted.stop()
        until("no leader", lambda: mixed.partitions("single")[0][0] == -1)
        set_min_isr(mixed, BROKER, "", 2)
        restarted.start()
        mixed.wait_isr("single", [restarted.id], restarted.id)
        clients.check(mixed.bootstrap, "single", ["kept"])


def catch_up(directory: Path) -> None:
    """A new broker of Kafka reads the metadata log of an Ottla controller, many batches in each Fetch."""
    with Mixed(directory, [CONTROLLER]) as mixed:
        controller = mixed.add(OTTLA, CONTROLLER, "controller", metadata_max_idle_interval_ms=1).start()
        until("a long log", lambda: _high_watermark(controller) > IDLE_BATCHES)
        controller.stop()
        controller.own.clear()
        controller.start()
        mixed.add(KAFKA, KAFKAS, "broker").start()
        mixed.wait_brokers(KAFKAS)
        fetches = _metric(controller, 'kafka_network_requestmetrics_requests_total{request="Fetch"}')
        if not 0 < fetches < IDLE_BATCHES / 5:
            raise NotSo(f"{fetches} Fetch requests for {IDLE_BATCHES} batches")


def raise_metadata_version(directory: Path, controller_kind: str) -> None:
    """While metadata.version is raised from 3.6 to 4.3, no partition goes offline."""
    release = ("--release-version", "3.6")
    with Mixed(directory, [CONTROLLER]) as mixed:
        controller = mixed.add(controller_kind, CONTROLLER, "controller").format(*release).start()
        kafka = mixed.add(KAFKA, KAFKAS, "broker").format(*release).start()
        ottla = mixed.add(OTTLA, OTTLAS, "broker").start()
        mixed.wait_brokers(*BOTH)
        written = [f"before {i}" for i in range(50)]
        for topic, leader, follower in (("by-kafka", kafka, ottla), ("by-ottla", ottla, kafka)):
            mixed.create(topic, [[leader.id, follower.id]])
            mixed.wait_isr(topic, BOTH, leader.id)
            clients.produce(mixed.bootstrap, topic, written)
        said = tool("kafka-features", "--bootstrap-server", ottla.bootstrap, "upgrade", "--release-version", "4.3")
        if "metadata.version was upgraded to" not in said:
            raise NotSo(said)
        for topic in ("by-kafka", "by-ottla"):
            mixed.wait_isr(topic, BOTH, seconds=20)
            clients.produce(mixed.bootstrap, topic, ["after"])
            clients.check(mixed.bootstrap, topic, [*written, "after"])
        for node in (ottla, kafka, controller):
            node.stop()
            node.start()
            for topic in ("by-kafka", "by-ottla"):
                mixed.wait_isr(topic, BOTH)


def _metric(node: Node, name: str) -> float:
    with urllib.request.urlopen(f"http://{HOST}:{node.admin_port}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def _high_watermark(node: Node) -> float:
    return _metric(node, "kafka_server_raftmetrics_high_watermark")
