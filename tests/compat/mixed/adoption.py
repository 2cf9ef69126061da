"""`ottla adopt` on the files of a real Apache Kafka, and Apache Kafka 4.3.1 on the files of Ottla: docs/MIGRATION.md, step by
step.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compat.mixed import clients
from tests.compat.mixed.contents import LOGINS, Contents, with_logins
from tests.compat.mixed.nodes import KAFKA, KAFKA_OLDEST, OTTLA, TOOL_SECONDS_MAX, Mixed, Node, NotSo, until
from tests.ottla.conftest import Cli
from tools.apache_kafka.jars import tiers_classpath

#: The levels of a new cluster of Apache Kafka 4.3, which are set in one step.
RAISED = (
    "metadata.version=4.3-IV0", "transaction.version=2", "group.version=1", "eligible.leader.replicas.version=1", "share.version=1",
    "streams.version=1",
)  # fmt: skip
#: Releases between the oldest and the newest, the last of each minor version.
BETWEEN = ("3.8.1", "3.9.2", "4.0.2", "4.1.2", "4.2.2")
#: A topic whose segments of ten records leave the disk at once, and what both programs need for it.
OLD = "old"
TIERED_TOPIC = {
    "remote_storage_enable": "true",
    "local_retention_ms": 1,
    "internal_segment_bytes": 12_000,
    "retention_ms": -1,
}
TIERED_NODE = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.topic.min.isr": "1",
    "remote.log.manager.task.interval.ms": "200",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "500",
    "log.segment.delete.delay.ms": "0",
}
ENDS = {"stop": Node.stop, "kill": Node.kill}


def there_and_back(directory: Path, kinds: Sequence[str], how: str) -> None:
    """A combined node of Kafka is adopted; it goes on as Kafka and as Ottla in turn, before and after its features are raised.

    The features of an older Kafka are raised before the last change.
    """
    end, (first, *others) = ENDS[how], kinds
    with Mixed(directory, [1], **LOGINS) as mixed:
        node = mixed.add(first, 1, "broker,controller")
        with_logins(mixed)
        node.start()
        mixed.wait_brokers(1)
        contents = Contents(mixed)
        contents.fill()
        if first == KAFKA:
            contents.fill_new_groups()
        for turn, kind in enumerate(others):
            end(node)
            node.become(kind)
            if kind == OTTLA:
                _check_adoption(node, is_clean=end is Node.stop)
            node.start()
            mixed.wait_brokers(1)
            contents.check()
            if turn == 0:
                contents.commit_open_transaction()
            if turn == len(others) - 2 and not contents.has_new_groups:
                raise_features(mixed)
                contents.fill_new_groups()
            contents.go_on()


def _check_adoption(node: Node, *, is_clean: bool) -> None:
    """Check that the dry run finds the contents and rejects nothing; the node is then started by the same command."""
    node.command = ("adopt", "--config", str(node.properties))
    node._write_properties()
    words = [*node.mixed.pythons[OTTLA], "-m", "ottla", *node.command, "--dry-run", "-o", "json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_SECONDS_MAX)
    if done.returncode:
        raise NotSo(f"adopt --dry-run: {done.stderr}")
    found = json.loads(done.stdout)
    if found["clean_shutdown"] != is_clean or not found["access_control_entries"] or "classic" not in found["groups"]:
        raise NotSo(f"adopt --dry-run found {found}")


def adopt_roles(directory: Path) -> None:
    """Adopt a controller of Kafka 3.7 by its directories alone, then its broker; Kafka runs on both again afterwards."""
    with Mixed(directory, [1]) as mixed:
        controller, broker = mixed.add(KAFKA_OLDEST, 1, "controller").start(), mixed.add(KAFKA_OLDEST, 2, "broker")
        broker.own["log.dirs"] = f"{broker.dir},{broker.dir}-second"
        broker.start()
        mixed.wait_brokers(2)
        mixed.create("t", [[2]] * 4)
        mixed.wait_isr("t", [2])
        written = [f"{i}" for i in range(100)]
        clients.produce(mixed.bootstrap, "t", written)
        clients.check_by_group(mixed.bootstrap, "t", "g", written)
        for kind in (OTTLA, KAFKA_OLDEST):
            for node in (broker, controller):
                node.stop()
                node.command = ("adopt", *(node.own.get("log.dirs") or str(node.dir)).split(","))
                node.become(kind).start()
                mixed.wait_brokers(2)
                mixed.wait_isr("t", [2])
                more = [f"{kind} {node.id} {i}" for i in range(50)]
                clients.produce(mixed.bootstrap, "t", more)
                written += more
                clients.check(mixed.bootstrap, "t", written)
                clients.check_by_group(mixed.bootstrap, "t", "g", more)


def adopt_tiered(directory: Path, kinds: Sequence[str], how: str) -> None:
    """Adopt a node of Kafka whose old segments are in its LocalTieredStorage. Each goes on with what the other stored, and
    deletes of it.
    """
    (directory / "store").mkdir(parents=True)
    with Mixed(directory, [1]) as mixed:
        mixed.properties |= TIERED_NODE | {"rsm.config.dir": str(directory / "store")}
        mixed.extra_classpath = tiers_classpath()
        node = mixed.add(kinds[0], 1, "broker,controller").start()
        mixed.wait_brokers(1)
        mixed.create(OLD, [[1]], **TIERED_TOPIC)
        written: list[str] = []
        for turn, kind in enumerate(kinds):
            if turn:
                ENDS[how](node)
                node.command = ("adopt", "--config", str(node.properties))
                node.become(kind).start()
                mixed.wait_brokers(1)
                mixed.wait_isr(OLD, [1])
                clients.check(mixed.bootstrap, OLD, written)
            more = [f"{turn} {kind} {number} ".ljust(900, ".") for number in range(300)]
            clients.produce(mixed.bootstrap, OLD, more, **{"batch.num.messages": "10"})
            clients.transact(mixed.bootstrap, OLD, [f"{turn} {kind} is over"], "payer")
            written += [*more, f"{turn} {kind} is over"]
            until("all sealed segments have left the disk", lambda: len(list(node.dir.glob(f"{OLD}-0/*.log"))) == 1)
            clients.check(mixed.bootstrap, OLD, written)
        before = _stored(directory)
        if before < 25 * len(kinds):
            raise NotSo(f"only {before} segments are in the store")
        admin = AdminClient({"bootstrap.servers": mixed.bootstrap})
        gone = TopicPartition(OLD, 0, 300)
        admin.delete_records([gone])[gone].result(TOOL_SECONDS_MAX)
        until("segments of the first writer have left the store", lambda: _stored(directory) <= before - 25)


def _stored(directory: Path) -> int:
    return len(list((directory / "store").rglob(f"{OLD}-0-*/*.log")))


def raise_features(mixed: Mixed) -> None:
    until("the features are raised", lambda: Cli(mixed.bootstrap)("feature", "upgrade", *RAISED).code == 0)


STEPS = {
    # While no feature is raised, Kafka 3.7 goes on with what Ottla wrote, too.
    "adopt-oldest-stop": partial(there_and_back, kinds=(KAFKA_OLDEST, OTTLA, KAFKA_OLDEST, OTTLA, KAFKA), how="stop"),
    "adopt-oldest-kill": partial(there_and_back, kinds=(KAFKA_OLDEST, OTTLA, KAFKA, OTTLA), how="kill"),
    **{
        f"adopt-{release}": partial(there_and_back, kinds=(f"{KAFKA}-{release}", OTTLA, KAFKA), how="kill")
        for release in BETWEEN
    },
    "adopt-roles": adopt_roles,
    **{f"adopt-tiered-{how}": partial(adopt_tiered, kinds=(KAFKA, OTTLA, KAFKA, OTTLA), how=how) for how in ENDS},
    "adopt-newest-stop": partial(there_and_back, kinds=(KAFKA, OTTLA, KAFKA, OTTLA, KAFKA), how="stop"),
    "adopt-newest-kill": partial(there_and_back, kinds=(KAFKA, OTTLA, KAFKA, OTTLA, KAFKA), how="kill"),
}
