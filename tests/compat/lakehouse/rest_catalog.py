"""`make compat ARGS=iceberg-rest`: topics' tables in Apache Iceberg's own REST catalog. The steps are functions of a folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from confluent_kafka import Producer
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from ottla.server.table_work import TableSettings
from ottla.tables.store import StoreFailure
from ottla.tables.table import CommitConflict, CommitUnknown, Owner
from ottla.testing import Cluster
from tests.compat.lakehouse.rest_server import losing_way, rest_server
from tests.compat.logins import check
from tests.ottla.tables.topics import TopicTables, found

#: The statuses that a client gets when the response to its commit is lost; 0 cuts the connection.
STATUSES = (500, 502, 503, 504, 0)
WAIT_SECONDS_MAX = 90.0


def topic_of(folder: Path, uri: str, name: str) -> TopicTables:
    settings = TableSettings("iceberg", str(folder / "lake"), uri, "bytes", "string", {})
    return TopicTables(settings, owner=Owner("cluster", f"id-of-{name}", name))


def write(topic: TopicTables, batch: int) -> None:
    topic.write(b"%d %d" % (batch, number) for number in range(10))
    topic.offer()


def check_once(topic: TopicTables, uri: str) -> None:
    table = RestCatalog("ottla", uri=uri).load_table(("ottla", topic.owner.topic))
    expected = sorted((where, value.decode()) for where, value in topic.expected().items())
    rows = found(table.scan().to_arrow().to_pylist())
    check(rows == expected, f"{topic.owner.topic}: {len(rows)} rows, {len(expected)} records")


def commits(folder: Path) -> None:
    """Make commits, also of a second writer, and of one that has loaded the table before another's commit."""
    with rest_server(folder) as server:
        topic, late = (topic_of(folder, server.url, "plain") for _ in range(2))
        topic.commit()
        state = late.opened.committer._followers[0].load()
        for batch in range(3):
            write(topic, batch)
            topic.commit()
        decision, follower = late.opened.log.last(), late.opened.committer._followers[0]
        assert state is not None and decision is not None
        try:
            follower._table.commit(state, follower._commit_of(decision))
            check(False, "a commit on an old snapshot was taken")
        except CommitConflict:
            pass
        check_once(topic, server.url)


def lost_answers(folder: Path) -> None:
    """Lose the response to each commit in each way, although the commit has happened."""
    with rest_server(folder) as server:
        for status in STATUSES:
            with losing_way(server, status) as (losses, way):
                topic = topic_of(folder, way, f"lost-{status}")
                for batch in range(3):
                    write(topic, batch)
                    losses.due = 1
                    topic.commit_at_last()
                check(losses.lost == 3, f"{losses.lost} answers were lost")
                check_once(topic, server.url)


def restarts(folder: Path) -> None:
    """Kill the server between and during commits; it comes back."""
    with rest_server(folder) as server:
        topic = topic_of(folder, server.url, "restarted")
        for batch in range(3):
            write(topic, batch)
            topic.commit_at_last()
            server.kill()
            write(topic, batch)
            try:
                topic.commit()
                check(False, "a commit without a catalog was taken")
            except (CommitUnknown, StoreFailure):
                pass
            server.start()
            topic.commit_at_last()
        check_once(topic, server.url)


def brokers(folder: Path) -> None:
    """Have a broker's topic in a table there, while the server is killed twice under a producer."""
    configs = {"ottla.table.format": "iceberg", "ottla.table.commit.interval.ms": "200"}
    with rest_server(folder) as server, Cluster(1, per_node={1: {"ottla.table.catalog": server.url}}) as cluster:
        cluster.topic("orders", partitions=2, configs=configs)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(600):
            producer.produce("orders", b"%d" % number, partition=number % 2)
            if number % 200 == 100:
                producer.flush()
                time.sleep(1)
                server.kill()
            if number % 200 == 150:
                producer.flush()
                time.sleep(1)
                server.start()
        producer.flush()
        server.kill()
        server.start()
        expected = {(each.partition, each.offset): each.value for each in cluster.records("orders", 600)}
        rows, deadline = dict[tuple[int, int], bytes](), time.monotonic() + WAIT_SECONDS_MAX
        while len(rows) < len(expected) and time.monotonic() < deadline:
            time.sleep(0.5)
            with suppress(NoSuchTableError):
                table = RestCatalog("ottla", uri=server.url).load_table(("ottla", "orders"))
                read = found(table.scan().to_arrow().to_pylist())
                rows = dict(read)
                check(len(read) == len(rows), "a row is there twice")
        check(rows == expected, f"{len(rows)} rows of {len(expected)} records")


STEPS: dict[str, Callable[[Path], None]] = {
    "commits": commits,
    "lost-answers": lost_answers,
    "restarts": restarts,
    "brokers": brokers,
}
