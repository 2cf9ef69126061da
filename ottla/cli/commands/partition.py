"""The commands of `ottla partition`: move, moves, cancel, elect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

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
from ottla.cli.commands.broker import move, wait_for_moves
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows, would
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import code_of, failure
from ottla.client.leaders import TopicPartition
from ottla.client.reassignments import PREFERRED, UNCLEAN, alter_reassignments, elect_leaders, list_reassignments
from ottla.client.topics import places_of
from ottla.protocol.errors import ErrorCode

app = App(name="partition", version_flags=[], help="Partitions: move replicas, elect leaders.")

MOVES_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")
ELECT_COLUMNS = ("topic", "partition", "result")
#: This error is no failure: the partition has its preferred leader already.
NOT_NEEDED = ErrorCode.ELECTION_NOT_NEEDED

Places = Annotated[list[str], Parameter(consume_multiple=True, help="TOPIC or TOPIC:PARTITION ...")]

main = partial(run, app)


@app.command(name="move")
async def move_(
    places: Places,
    /,
    *,
    to: Annotated[str, Parameter(help="The brokers of the replicas, the preferred leader first: 1,2,3.")],
    wait: Annotated[bool, Parameter(negative="--no-wait", help="Wait until everything has moved.")] = True,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Move all replicas of partitions to these brokers. Their number may change, and with it the replication factor."""
    brokers = _brokers(to)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            found = await places_of(cluster, places)
            if dry_run:
                await _check_brokers(cluster, brokers)
                would(f"move {len(found)} partition(s) to {to}")
                return
        await move(cluster, dict.fromkeys(found, brokers))
        if wait:
            await wait_for_moves(cluster, found)
        else:
            note("`ottla partition moves` shows what goes on")


@app.command
async def moves(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """Show the moves that go on."""
    async with connect(connection) as cluster:
        found = await list_reassignments(cluster)
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": part.replicas,
            "adding": part.adding_replicas,
            "removing": part.removing_replicas,
        }
        for (name, index), part in sorted(found.items())
    ]
    print_rows(rows, MOVES_COLUMNS, listing.output)


@app.command
async def cancel(places: Places, /, *, dry_run: DryRun = False, connection: ConnectionOptions = CONNECTION) -> None:
    """Cancel the moves of partitions: they stay where they were."""
    async with connect(connection) as cluster:
        found = await places_of(cluster, places)
        going_on = await list_reassignments(cluster, found)
        if not going_on:
            raise CommandFailed("none of these partitions is moving", "`ottla partition moves` shows what goes on")
        if dry_run:
            would(f"cancel the moves of {', '.join(f'{name}-{index}' for name, index in sorted(going_on))}")
            return
        for (name, index), (code, message) in (await alter_reassignments(cluster, dict.fromkeys(going_on))).items():
            if code:
                raise CommandFailed(f"{name}-{index}: {message or code_of(code).message} ({code_of(code).name})")
    note(f"{len(going_on)} cancelled")


@app.command
async def elect(
    places: Annotated[
        list[str] | None, Parameter(consume_multiple=True, help="TOPIC or TOPIC:PARTITION ...; default: all.")
    ] = None,
    /,
    *,
    unclean: Annotated[
        bool, Parameter(negative="", help="Of partitions without a leader: any replica, though records may be lost.")
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
    """Return the partitions, all for None, whose leader is not their first replica."""
    return [
        f"{topic.name}-{part.partition_index}"
        for topic in sorted((await cluster.metadata(None)).topics, key=lambda topic: topic.name or "")
        for part in sorted(topic.partitions, key=lambda part: part.partition_index)
        if part.replica_nodes[:1] != [part.leader_id]
        and (places is None or (topic.name or "", part.partition_index) in places)
    ]


async def _check_brokers(cluster: ClusterClient, brokers: Sequence[int]) -> None:
    known = {row.node_id for row in (await cluster.metadata([])).brokers}
    for broker in brokers:
        if broker not in known:
            raise failure(f"broker {broker}", ErrorCode.INVALID_REPLICA_ASSIGNMENT)


def _brokers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise CommandFailed(f"--to {text!r} is no list of brokers", "for example --to 1,2,3", USAGE)
    return [int(part) for part in parts]
