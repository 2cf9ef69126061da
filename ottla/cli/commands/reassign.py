"""The commands of `ottla reassign`: plan, run, list, watch, cancel, unthrottle. `ottla rebalance` makes plans for whole clusters."""

from __future__ import annotations

import asyncio
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
from ottla.cli.errors import CommandFailed
from ottla.cli.output import confirm, note, print_rows, replace_file, would
from ottla.cli.progress import ProgressLine, size_text
from ottla.client.cluster import ClusterClient
from ottla.client.errors import Failure
from ottla.client.leaders import TopicPartition
from ottla.client.move_file import PlannedMove, read_moves, write_moves
from ottla.client.moves import (
    cancel_moves,
    check_throttle,
    finish_moves,
    left_to_move,
    moves_to,
    plan_moves,
    read_brokers,
    start_moves,
    take_throttle_off,
    throttled_topics,
    watch_moves,
)
from ottla.client.reassignments import list_reassignments
from ottla.client.topics import places_of

app = App(
    name="reassign",
    version_flags=[],
    help="Move replicas by plans: plan, run, list, watch, cancel, take throttles off.",
)

MOVE_COLUMNS = ("topic", "partition", "replicas", "new_replicas", "bytes")
LIST_COLUMNS = ("topic", "partition", "replicas", "adding", "removing", "bytes_moved", "bytes")


main = partial(run, app)

Throttle = Annotated[
    int | None,
    Parameter(help="Bytes a second that each broker may send and fetch for the moves; taken off at the end."),
]
Wait = Annotated[bool, Parameter(negative="--no-wait", help="Wait until everything has moved.")]
Save = Annotated[str | None, Parameter(help="Write the plan into this file, for `ottla reassign run`.")]


@app.command
async def plan(
    places: Annotated[list[str], Parameter(consume_multiple=True, help="TOPIC or TOPIC:PARTITION ...")],
    /,
    *,
    brokers: Annotated[str, Parameter(help="The brokers that shall have them: 1,2,3.")],
    save: Save = None,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Plan to have partitions on some brokers only, evenly and over their racks. It shows the bytes that would move."""
    wanted = read_brokers("--brokers", brokers)
    async with connect(connection) as cluster:
        moves = await plan_moves(cluster, await places_of(cluster, places), wanted)
    show_plan(moves, output, save)


@app.command(name="run")
async def run_(
    file: Annotated[str, Parameter(help="A plan, also one of kafka-reassign-partitions.")],
    /,
    *,
    throttle: Throttle = None,
    wait: Wait = True,
    rollback: Annotated[str | None, Parameter(help="Write the replicas as they are now into this file.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Carry a plan out, and wait until everything has moved. Ctrl-C leaves the moves to the brokers, and says what there is to do."""
    target = read_moves(file)
    check_throttle(throttle)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            moves = await moves_to(cluster, target)
        show_plan(moves, output, None)
        if rollback is not None and not dry_run:
            replace_file(rollback, write_moves({move.place: move.before for move in moves}))
        await carry_out(cluster, moves, throttle, wait=wait, dry_run=dry_run, yes=yes)


@app.command(name="list")
async def list_(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """Show the moves that go on, and how much of each has moved."""
    async with connect(connection) as cluster:
        ongoing = await list_reassignments(cluster)
        left = await left_to_move(cluster, ongoing) if ongoing else {}
    rows = [
        {
            "topic": name,
            "partition": index,
            "replicas": part.replicas,
            "adding": part.adding_replicas,
            "removing": part.removing_replicas,
            "bytes_moved": left[name, index][0],
            "bytes": left[name, index][1],
        }
        for (name, index), part in sorted(ongoing.items())
    ]
    print_rows(rows, LIST_COLUMNS, listing.output)


@app.command
async def watch(*, connection: ConnectionOptions = CONNECTION) -> None:
    """Wait for all moves that go on, with rate and remaining time."""
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            ongoing = await list_reassignments(cluster)
            left = await left_to_move(cluster, ongoing) if ongoing else {}
        await _watched(cluster, {place: total for place, (_, total) in left.items()})
    note("nothing moves")


@app.command
async def cancel(
    places: Annotated[
        list[str] | None, Parameter(consume_multiple=True, help="TOPIC or TOPIC:PARTITION ...; default: all.")
    ] = None,
    /,
    *,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Cancel moves: the partitions stay where they were. Throttles are taken off."""
    async with connect(connection) as cluster:
        named = None if places is None else await places_of(cluster, places)
        ongoing = await list_reassignments(cluster, named)
        if not ongoing:
            raise CommandFailed("none of these partitions is moving", "`ottla reassign list` shows what goes on")
        shown = ", ".join(f"{name}-{index}" for name, index in sorted(ongoing))
        if dry_run:
            would(f"cancel the moves of {shown}")
            return
        await cancel_moves(cluster, ongoing)
    note(f"cancelled the moves of {shown}")


@app.command
async def unthrottle(*, dry_run: DryRun = False, connection: ConnectionOptions = CONNECTION) -> None:
    """Take the throttles of all brokers and topics off, which a move that was left alone has kept."""
    async with connect(connection) as cluster:
        topics = await throttled_topics(cluster)
        if dry_run:
            would(f"take throttles off all brokers and of {', '.join(topics) or 'no topic'}")
            return
        await take_throttle_off(cluster, topics)
    note(f"no broker is throttled{', nor ' + ', '.join(topics) if topics else ''}")


def show_plan(moves: list[PlannedMove], output: str, save: str | None) -> None:
    """Print a plan, and write it into a file."""
    print_rows([move.row() for move in moves], MOVE_COLUMNS, output)
    note(f"{len(moves)} partition(s) change, {size_text(sum(move.bytes for move in moves))} move")
    if save is not None:
        replace_file(save, write_moves({move.place: move.after for move in moves}))


async def carry_out(
    cluster: ClusterClient, moves: list[PlannedMove], throttle: int | None, *, wait: bool, dry_run: bool, yes: bool
) -> None:
    """Start the moves of a plan that was shown, and wait for them."""
    if dry_run or not moves:
        note("nothing was changed (--dry-run)" if dry_run else "there is nothing to move")
        return
    confirm(f"move {len(moves)} partition(s)?", yes)
    await start_moves(cluster, moves, throttle)
    if not wait:
        note("`ottla reassign watch` shows how far they are" + _throttle_stays(throttle))
        return
    try:
        await _watched(cluster, {move.place: move.bytes for move in moves})
    except (asyncio.CancelledError, Failure):
        note(
            "the moves go on at the brokers: `ottla reassign watch` shows them, `ottla reassign cancel` ends them"
            + _throttle_stays(throttle)
        )
        raise
    await finish_moves(cluster, moves, throttle is not None)
    note(f"{len(moves)} partition(s) have moved")


async def _watched(cluster: ClusterClient, totals: dict[TopicPartition, int]) -> None:
    clock = cluster.world.clock
    with ProgressLine("moving", sum(totals.values()), "bytes", clock.mono_ms()) as progress:
        await watch_moves(cluster, sorted(totals), totals, lambda done: progress.update(done, clock.mono_ms()))


def _throttle_stays(throttle: int | None) -> str:
    return "" if throttle is None else "; the throttle stays until `ottla reassign unthrottle`"
