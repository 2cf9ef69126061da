"""`format("ottla")`, source and sink, over TLS and by each login that it serves, at a node or at Apache Kafka, whose user has ACLs only.

The JVM source reads the same topics by the same login, and both must have the same rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.compat.librdkafka import Outcome
from tests.compat.logins import TOPICS, WAIT_S, check, outcome
from tests.compat.secured import SESSION_MS, USER, SecuredNode, java, librdkafka
from tests.compat.spark.job import patiently

LOGINS = [
    ("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    ("SASL_SSL", "SCRAM-SHA-512"),
    ("SASL_SSL", "PLAIN"),
    ("SSL", ""),
]
ROWS = 1000
#: The permissions that a user of the source and of the sink needs by docs/SPARK.md: kind, name, pattern and operations.
MAY = (
    (ResourceType.TOPIC, "ottla-spark-batches", ResourcePatternType.LITERAL, ("READ", "WRITE", "CREATE")),
    (ResourceType.TRANSACTIONAL_ID, "ottla-spark-", ResourcePatternType.PREFIXED, ("WRITE", "DESCRIBE")),
    (ResourceType.TOPIC, TOPICS, ResourcePatternType.PREFIXED, ("READ", "WRITE")),
    (ResourceType.GROUP, TOPICS, ResourcePatternType.PREFIXED, ("READ",)),
)


def allow_sink(node: SecuredNode) -> None:
    """Write the ACLs of the user and of the certificate."""
    admin = AdminClient(librdkafka(node, "PLAINTEXT"))
    entries = [
        AclBinding(kind, name, pattern, principal, "*", AclOperation[operation], AclPermissionType.ALLOW)
        for principal in (f"User:{USER}", "User:CN=client")
        for kind, name, pattern, operations in MAY
        for operation in operations
    ]
    for done in admin.create_acls(entries).values():
        done.result(WAIT_S)


class Login:
    """A session of Spark at a node, with one login."""

    def __init__(self, spark: Any, node: SecuredNode, protocol: str, mechanism: str) -> None:
        self._spark = spark
        self.options = {f"kafka.{name}": text for name, text in java(node, protocol, mechanism).items()}
        self.options["kafka.bootstrap.servers"] = node.address(protocol)
        self.name = f"{protocol}-{mechanism or 'certificate'}-connector"

    def topic(self, node: SecuredNode, name: str) -> str:
        from confluent_kafka.admin import NewTopic

        topic = f"{self.name}-{name}"
        admin = AdminClient(librdkafka(node, "PLAINTEXT"))
        for made in admin.create_topics([NewTopic(topic, 2, 1)]).values():
            made.result(WAIT_S)
        return topic

    def values(self, form: str, topic: str) -> list[int]:
        reader = self._spark.read.format(form).options(**self.options).option("subscribe", topic)
        rows = reader.option("kafka.isolation.level", "read_committed").load().select("value").collect()
        return sorted(int(row.value) for row in rows)

    def write(self, topic: str, batch: int, **options: str) -> None:
        rows = self._spark.range(batch * ROWS, batch * ROWS + ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
        writer = rows.write.format("ottla").options(**self.options).option("topic", topic).options(**options)
        writer.mode("append").save()

    def written_once(self, node: SecuredNode, folder: Path) -> None:
        """Write one batch twice, and one at least once. Both sources read the same rows."""
        topic = self.topic(node, "batches")
        for _ in range(2):
            self.write(topic, 0, sinkId=self.name, batchId="0")
        self.write(topic, 1, exactlyOnce="false")
        for form in ("ottla", "kafka"):
            found = self.values(form, topic)
            check(found == list(range(2 * ROWS)), f"{form} reads {len(found)} rows from {found[:1]} to {found[-1:]}")

    def copied(self, node: SecuredNode, folder: Path) -> None:
        """Copy by a stream that lives longer than its login: the node wants a new login after SESSION_MS."""
        source, target = self.topic(node, "source"), self.topic(node, "target")
        reader = self._spark.readStream.format("ottla").options(**self.options).option("subscribe", source)
        reader = reader.option("kafka.group.id", f"{self.name}-group").option("startingOffsets", "earliest")
        writer = reader.load().select("key", "value").writeStream.format("ottla").options(**self.options)
        writer = writer.option("topic", target).option("checkpointLocation", str(folder / self.name))
        writer = writer.trigger(processingTime="1 second")
        queries = [writer.start()]

        def catch_up() -> None:
            if not queries[-1].isActive:
                queries.append(writer.start())
            queries[-1].processAllAvailable()

        try:
            begin = time.monotonic()
            for batch in range(3):
                self.write(source, batch)
                until = begin + batch * SESSION_MS / 1000
                while time.monotonic() < until:
                    time.sleep(0.1)
                patiently(catch_up)
        finally:
            queries[-1].stop()
        found = self.values("ottla", target)
        check(found == list(range(3 * ROWS)), f"{len(found)} of {3 * ROWS} rows are copied")


@contextmanager
def session_in(folder: Path) -> Iterator[Any]:
    from ottla.pipeline import config, session

    settings = (f"pipeline.output={folder}", "spark.shuffle_partitions=1", "source.connector=ottla")
    spark = session.start(config.load(None, settings))
    try:
        yield spark
    finally:
        spark.stop()


def by_each_login(
    node: SecuredNode, logs: Path, report: Callable[[Outcome], Outcome], where: str = ""
) -> list[Outcome]:
    allow_sink(node)
    found = []
    with session_in(logs / "spark-connector") as spark:
        for protocol, mechanism in LOGINS:
            login = Login(spark, node, protocol, mechanism)
            for what, work in (("batches", login.written_once), ("stream", login.copied)):
                name = f"{protocol}/{mechanism or 'certificate'}/connector {what}{where}"
                found.append(report(outcome(name, lambda w=work: w(node, logs))))
    return found
