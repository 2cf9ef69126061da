"""The commands of `ottla topic`: list, create, describe, delete, add-partitions, delete-records."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, Output, connect, run
from ottla.cli.client import topics
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import uuid_to_str

app = App(
    name="topic", version_flags=[], help="Topics: list, create, describe, delete; add partitions, delete records."
)

LIST_COLUMNS = ("topic", "partitions", "replication_factor", "topic_id")
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "first_offset", "next_offset", "records")

main = partial(run, app)


@app.command(name="list")
async def list_topics(
    *,
    internal: Annotated[bool, Parameter(negative="", help="Internal topics too, such as __consumer_offsets.")] = False,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """List topics."""
    async with connect(connection) as cluster:
        cluster.doing = "listing topics"
        found = (await cluster.metadata(None)).topics
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(part.replica_nodes) for part in topic.partitions), default=0),
            "topic_id": uuid_to_str(topic.topic_id),
            "internal": topic.is_internal,
        }
        for topic in sorted(found, key=lambda topic: topic.name or "")
        if internal or not topic.is_internal
    ]
    print_rows(rows, LIST_COLUMNS, output)


@app.command
async def create(
    name: str,
    /,
    *,
    partitions: Annotated[int, Parameter(name=["--partitions", "-p"], help="-1: the broker's num.partitions.")] = -1,
    replication_factor: Annotated[
        int, Parameter(name=["--replication-factor", "-r"], help="-1: the broker's default.replication.factor.")
    ] = -1,
    config: Annotated[list[str] | None, Parameter(name=["--set", "-c"], help="KEY=VALUE.", negative="")] = None,
    if_not_exists: Annotated[bool, Parameter(negative="", help="Be content with a topic that is there.")] = False,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Create a topic."""
    configs = dict(split_setting(item) for item in config or [])
    async with connect(connection) as cluster:
        try:
            created = await topics.create_topic(cluster, name, partitions, replication_factor, configs)
        except CommandFailed as failure:
            if if_not_exists and failure.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"topic {name} exists already")
                return
            raise
    row = {
        "topic": name,
        "partitions": created.num_partitions,
        "replication_factor": created.replication_factor,
        "topic_id": uuid_to_str(created.topic_id),
    }
    print_rows([row], LIST_COLUMNS, output)


@app.command
async def describe(name: str, /, *, output: Output = "table", connection: Connection = CONNECTION) -> None:
    """Show the partitions of a topic: leader, replicas, in-sync replicas, offsets."""
    async with connect(connection) as cluster:
        topic = await cluster.topic(name)
        first = await topics.list_offsets(cluster, name, topics.EARLIEST)
        following = await topics.list_offsets(cluster, name, topics.LATEST)
    rows = [
        {
            "topic": name,
            "partition": part.partition_index,
            "leader": part.leader_id,
            "leader_epoch": part.leader_epoch,
            "replicas": part.replica_nodes,
            "isr": part.isr_nodes,
            "offline_replicas": part.offline_replicas,
            "first_offset": first[part.partition_index],
            "next_offset": following[part.partition_index],
            "records": following[part.partition_index] - first[part.partition_index],
        }
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
    ]
    print_rows(rows, PARTITION_COLUMNS, output)


@app.command
async def delete(
    names: Annotated[list[str], Parameter(consume_multiple=True)],
    /,
    *,
    connection: Connection = CONNECTION,
) -> None:
    """Delete topics with all their records."""
    async with connect(connection) as cluster:
        await topics.delete_topics(cluster, names)
    note(f"deleted {', '.join(names)}")


@app.command(name="add-partitions")
async def add_partitions(
    name: str,
    /,
    *,
    to: Annotated[int, Parameter(help="How many partitions the topic shall have.")],
    connection: Connection = CONNECTION,
) -> None:
    """Give a topic more partitions. Keys may then go to other partitions than before."""
    async with connect(connection) as cluster:
        await topics.add_partitions(cluster, name, to)
    note(f"topic {name} has {to} partitions")


@app.command(name="delete-records")
async def delete_records(
    name: str,
    /,
    *,
    before: Annotated[str, Parameter(help="The first offset to keep, or `latest` to keep none.")],
    partition: Annotated[
        list[int] | None, Parameter(name=["--partition", "-p"], help="Default: all.", negative="")
    ] = None,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> None:
    """Delete the oldest records of partitions, up to an offset."""
    if before != "latest" and not before.isdecimal():
        raise CommandFailed(f"--before {before!r} is neither an offset nor `latest`", None, USAGE)
    offset = topics.HIGH_WATERMARK if before == "latest" else int(before)
    async with connect(connection) as cluster:
        indexes = partition or await cluster.partitions(name)
        first = await topics.delete_records(cluster, name, dict.fromkeys(indexes, offset))
    rows = [{"topic": name, "partition": index, "first_offset": first[index]} for index in sorted(first)]
    print_rows(rows, ("topic", "partition", "first_offset"), output)


def split_setting(text: str) -> tuple[str, str]:
    """Split KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CommandFailed(f"setting {text!r} is not KEY=VALUE", "for example retention.ms=3600000", USAGE)
    return key.strip(), value
