"""The commands of `ottla partition`: list, elect. `ottla move` moves replicas."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import (
    CONNECTION,
    LISTING,
    ConnectionOptions,
    DryRun,
    ListingOptions,
    Output,
    Yes,
    connect,
    run,
)
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import confirm, print_rows, would
from ottla.cli.shared_options import Internal, PlacesOrAll
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import check_brokers
from ottla.client.errors import code_of
from ottla.client.partitions import TopicPartition
from ottla.client.topics import PREFERRED, UNCLEAN, elect_leaders, places_of
from ottla.protocol.errors import ErrorCode

app = App("partition", "Partitions: list them, elect their leaders.")

LIST_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "offline_replicas")
ELECT_COLUMNS = ("topic", "partition", "result")
#: This error is no failure: the partition has its preferred leader already.
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED

main = partial(run, app)


@app.named("list")
async def list_(
    places: PlacesOrAll = None,
    /,
    *,
    led_by: Annotated[int | None, Parameter(help="Only partitions that this broker leads.")] = None,
    on: Annotated[int | None, Parameter(help="Only partitions of which this broker has a replica.")] = None,
    internal: Internal = False,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show partitions: leader, replicas, and which of them are in sync. `ottla topic describe` has the offsets."""
    async with connect(connection) as cluster:
        wanted = None if places is None else set(await places_of(cluster, places))
        await check_brokers(cluster, [node for node in (led_by, on) if node is not None])
        cluster.doing = "listing partitions"
        topics = (await cluster.metadata(None)).topics
    rows = [
        {
            "topic": topic.name,
            "partition": part.partition_index,
            "leader": part.leader_id,
            "leader_epoch": part.leader_epoch,
            "replicas": part.replica_nodes,
            "isr": part.isr_nodes,
            "offline_replicas": part.offline_replicas,
        }
        for topic in sorted(topics, key=lambda topic: topic.name or "")
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        if ((internal or not topic.is_internal) if wanted is None else (topic.name, part.partition_index) in wanted)
        and led_by in (None, part.leader_id)
        and (on is None or on in part.replica_nodes)
    ]
    print_rows(rows, LIST_COLUMNS, listing.output)


@app.command
async def elect(
    places: PlacesOrAll = None,
    /,
    *,
    unclean: Annotated[
        bool, Parameter(help="Of partitions without a leader: any replica, though records may be lost.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Make the preferred replica of partitions their leader. Exit code 1: one could not be elected."""
    if unclean and not places:
        raise CommandFailed("--unclean is for partitions that are named", "TOPIC:PARTITION ...", USAGE)
    if unclean and not dry_run:
        confirm("acknowledged records may be lost by an unclean election; go on?", yes)
    async with connect(connection) as cluster:
        found = await places_of(cluster, places) if places else None
        if dry_run:
            elected = await _led_by_another(cluster, found)
            would(f"elect the leaders of {', '.join(elected) or 'no partition: each has its preferred leader'}")
            return OK
        results = await elect_leaders(cluster, found, UNCLEAN if unclean else PREFERRED)
    rows = [
        {
            "topic": name,
            "partition": index,
            "result": "elected"
            if not part.error_code
            else "not needed"
            if part.error_code == NOT_NEEDED
            else part.error_message or code_of(part.error_code).message,
            "error": code_of(part.error_code).name if part.error_code else None,
        }
        for (name, index), part in sorted(results.items())
    ]
    print_rows(rows, ELECT_COLUMNS, output)
    return FAILED if any(part.error_code not in (0, NOT_NEEDED) for part in results.values()) else OK


async def _led_by_another(cluster: ClusterClient, places: list[TopicPartition] | None) -> list[str]:
    """Return the partitions whose leader is not their first replica; None means of all topics."""
    return [
        f"{topic.name}-{part.partition_index}"
        for topic in sorted((await cluster.metadata(None)).topics, key=lambda topic: topic.name or "")
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        if part.replica_nodes[:1] != [part.leader_id]
        and (places is None or (topic.name or "", part.partition_index) in places)
    ]
