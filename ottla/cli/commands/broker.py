"""The commands of `ottla broker`: list, log-dirs, remove."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import (
    CONNECTION,
    LISTING,
    ConnectionOptions,
    DryRun,
    ListingOptions,
    Yes,
    connect,
    run,
)
from ottla.cli.errors import FAILED, OK, CommandFailed
from ottla.cli.output import confirm, note, print_rows, would
from ottla.client.cluster import RETRY_BACKOFF_MS, NoConnection
from ottla.client.cluster_state import answers, check_brokers, describe_cluster, describe_log_dirs, unregister_broker
from ottla.client.errors import code_of
from ottla.client.failures import counted
from ottla.client.moves import replicas_of_all
from ottla.client.topics import adding_replicas
from ottla.protocol.replica_sets import original_replicas

app = App("broker", "Brokers: list, log directories, remove.")

LIST_COLUMNS = ("broker", "host", "port", "rack", "fenced", "leaders", "replicas", "out_of_sync")
DIRECTORY_COLUMNS = ("broker", "log_dir", "replicas", "bytes", "free_bytes", "total_bytes", "moving", "problem")

main = partial(run, app)


@app.named("list")
async def list_(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """Show the brokers: where they are, and what they lead and hold."""
    async with connect(connection) as cluster:
        described = await describe_cluster(cluster)
        topics = (await cluster.metadata(None)).topics
        adding = await adding_replicas(cluster, topics)
    parts = [part for topic in topics for part in topic.partitions]
    leaders = Counter(part.leader_id for part in parts)
    replicas = Counter(node for part in parts for node in part.replica_nodes)
    missing = Counter(
        node
        for topic in topics
        for part in topic.partitions
        for node in original_replicas(part.replica_nodes, adding.get((topic.name or "", part.partition_index), ()))
        if node not in part.isr_nodes
    )
    rows = [
        {
            "broker": row.broker_id,
            "host": row.host,
            "port": row.port,
            "rack": row.rack,
            "fenced": row.is_fenced,
            "leaders": leaders[row.broker_id],
            "replicas": replicas[row.broker_id],
            "out_of_sync": missing[row.broker_id],
        }
        for row in sorted(described.brokers, key=lambda row: row.broker_id)
    ]
    print_rows(rows, LIST_COLUMNS, listing.output)


@app.named("log-dirs")
async def log_dirs(
    brokers: Annotated[list[int] | None, Parameter(help="Default: all.")] = None,
    /,
    *,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Show the log directories of brokers: what is in them, and what room is left. Exit code 1: one cannot be used."""
    rows: list[dict[str, object]] = []
    async with connect(connection) as cluster:
        described = await describe_cluster(cluster)
        alive = sorted(row.broker_id for row in described.brokers if not row.is_fenced)
        for broker in brokers or alive:
            try:
                found = await describe_log_dirs(cluster, broker)
            except NoConnection as fault:
                rows.append({"broker": broker, "problem": fault.cause})
                continue
            for directory in found:
                parts = [part for topic in directory.topics for part in topic.partitions]
                rows.append(
                    {
                        "broker": broker,
                        "log_dir": directory.log_dir,
                        "replicas": sum(not part.is_future_key for part in parts),
                        "bytes": sum(part.partition_size for part in parts),
                        "free_bytes": _known(directory.usable_bytes),
                        "total_bytes": _known(directory.total_bytes),
                        "moving": sum(part.is_future_key for part in parts),
                        "cordoned": directory.is_cordoned,
                        "problem": code_of(directory.error_code).name if directory.error_code else None,
                    }
                )
    print_rows(rows, DIRECTORY_COLUMNS, listing.output)
    return FAILED if any(row["problem"] for row in rows) else OK


@app.command
async def remove(
    broker: int, /, *, dry_run: DryRun = False, yes: Yes = False, connection: ConnectionOptions = CONNECTION
) -> None:
    """Remove the registration of a broker that has stopped for good. It must hold no replicas: `ottla move run --drain BROKER` moves them.

    One that has stopped just now, or was killed, is removed as soon as the controller has fenced it.
    """
    async with connect(connection) as cluster:
        await check_brokers(cluster, [broker])
        found = {row.broker_id: row for row in (await describe_cluster(cluster)).brokers}
        held = [place for place, nodes in (await replicas_of_all(cluster)).items() if broker in nodes]
        if held:
            raise CommandFailed(
                f"broker {broker} holds {counted(len(held), 'replica')}, such as that of {held[0][0]}-{held[0][1]}",
                f"`ottla move run --drain {broker}` moves them",
            )
        while broker in found and not found[broker].is_fenced:
            if await answers(cluster, broker):
                raise CommandFailed(f"broker {broker} is running", "stop it first: it would register again")
            # Other brokers replay its fencing a moment after a clean stop. After a crash its session has to end first.
            cluster.doing = f"waiting for the controller to fence broker {broker}, which does not answer"
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
            found = {row.broker_id: row for row in (await describe_cluster(cluster)).brokers}
        if dry_run:
            would(f"remove broker {broker}")
            return
        confirm(f"remove broker {broker} from the cluster?", yes)
        await unregister_broker(cluster, broker)
    note(f"removed broker {broker}")


def _known(number: int) -> int | None:
    return None if number < 0 else number
