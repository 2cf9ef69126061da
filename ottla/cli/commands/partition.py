"""The commands of `ottla partition`: move, moves, cancel, elect."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, Output, Yes, connect, run
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.failures import code_of
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.client.reassignments import PREFERRED, UNCLEAN, alter_reassignments, elect_leaders, list_reassignments
from ottla.cli.commands.broker import move, wait_for_moves
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import confirm, note, print_rows
from ottla.protocol.errors import ErrorCode

app = App(name="partition", version_flags=[], help="Partitions: move replicas, elect leaders.")

MOVES_COLUMNS = ("topic", "partition", "replicas", "adding", "removing")
ELECT_COLUMNS = ("topic", "partition", "result")
#: What is no failure: the partition has its preferred leader already.
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
    connection: Connection = CONNECTION,
) -> None:
    """Move all replicas of partitions to these brokers. Their number may change, and with it the replication factor."""
    brokers = _brokers(to)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            found = await places_of(cluster, places)
        await move(cluster, dict.fromkeys(found, brokers))
        if wait:
            await wait_for_moves(cluster, found)
        else:
            note("`ottla partition moves` shows what goes on")


@app.command
async def moves(*, output: Output = "table", connection: Connection = CONNECTION) -> None:
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
    print_rows(rows, MOVES_COLUMNS, output)


@app.command
async def cancel(places: Places, /, *, connection: Connection = CONNECTION) -> None:
    """Cancel the moves of partitions: they stay where they were."""
    async with connect(connection) as cluster:
        found = await places_of(cluster, places)
        going_on = await list_reassignments(cluster, found)
        if not going_on:
            raise CommandFailed("none of these partitions is moving", "`ottla partition moves` shows what goes on")
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
    yes: Yes = False,
    output: Output = "table",
    connection: Connection = CONNECTION,
) -> int:
    """Make the preferred replica of partitions their leader. Exit code 1: one could not be elected."""
    if unclean and not places:
        raise CommandFailed("--unclean is for partitions that are named", "TOPIC:PARTITION ...", USAGE)
    if unclean:
        confirm("acknowledged records may be lost by an unclean election; go on?", yes)
    async with connect(connection) as cluster:
        found = await places_of(cluster, places) if places else None
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


async def places_of(cluster: ClusterClient, texts: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of TOPIC or TOPIC:PARTITION.

    Raises:
        CommandFailed: there is no such topic, or the text has another form.
    """
    places: list[TopicPartition] = []
    for text in texts:
        name, colon, index = text.partition(":")
        if colon and not index.isdecimal():
            raise CommandFailed(f"{text!r} is not TOPIC or TOPIC:PARTITION", None, USAGE)
        indexes = await cluster.partitions(name)
        places += [(name, int(index))] if colon else [(name, number) for number in indexes]
    return places


def _brokers(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise CommandFailed(f"--to {text!r} is no list of brokers", "for example --to 1,2,3", USAGE)
    return [int(part) for part in parts]
