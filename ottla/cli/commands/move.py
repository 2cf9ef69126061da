"""The commands of `ottla move`: plan, run, show, wait, cancel, unthrottle. No other command moves replicas.

`plan` and `run` take the moves in one of four ways:

    TOPIC --to 1,2,3        exactly these replicas, for the named partitions
    TOPIC --among 1,2,3     spread over these brokers only, evenly and over their racks
    --even, --drain 3       even the whole cluster, or move everything away from brokers
    --plan FILE             as a file says, also a file of kafka-reassign-partitions
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter, option_group
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
from ottla.cli.drain import plan_drain
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import Row, confirm, note, print_rows, replace_file, would
from ottla.cli.progress import ProgressLine
from ottla.cli.shared_options import PlacesOrAll
from ottla.cli.units import size_text
from ottla.client.balance import TOLERANCE, Racks, Replicas, loads, plan_balance
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import check_brokers
from ottla.client.failures import Failure, counted
from ottla.client.move_plans import (
    moves_between,
    moves_to,
    plan_moves,
    read_brokers,
    read_moves,
    refuse_stuck,
    write_moves,
)
from ottla.client.moves import (
    PlannedMove,
    cancel_moves,
    check_throttle,
    finish_moves,
    left_to_move,
    partition_sizes,
    racks_of_brokers,
    replica_sizes,
    replicas_of_all,
    start_moves,
    take_throttle_off,
    throttled_topics,
    watch_moves,
)
from ottla.client.partitions import TopicPartition
from ottla.client.topics import list_reassignments, places_of

app = App(
    "move",
    "Move replicas: plan, run, show, wait, cancel; take throttles off.",
)

MOVE_COLUMNS = ("topic", "partition", "replicas", "new_replicas", "bytes")
SHOW_COLUMNS = ("topic", "partition", "replicas", "adding", "removing", "bytes_moved", "bytes")
LOAD_COLUMNS = ("broker", "rack", "leaders", "new_leaders", "replicas", "new_replicas", "bytes", "new_bytes")

main = partial(run, app)


@option_group
class MoveTarget:
    """The target of moves: --to, --among, --even or --drain, or --plan."""

    to: Annotated[
        str | None,
        Parameter(help="Exactly these replicas, the preferred leader first: 1,2,3. Their number may change."),
    ] = None
    among: Annotated[str | None, Parameter(help="Some of these brokers only, evenly and over their racks: 1,2,3.")] = (
        None
    )
    even: Annotated[bool, Parameter(help="Even replicas, bytes and leaders over brokers and racks.")] = False
    drain: Annotated[
        list[int] | None,
        Parameter(
            help="A broker that shall hold nothing, before it is taken away. With --even the others are evened.",
        ),
    ] = None
    plan: Annotated[
        str | None, Parameter(help="A file that `ottla move plan --save` wrote, or one of kafka-reassign-partitions.")
    ] = None
    tolerance: Annotated[
        float, Parameter(help="Percent above the mean at which --even takes the bytes of a broker as even.")
    ] = TOLERANCE * 100

    def check(self, places: list[str] | None) -> None:
        """Check that exactly one way was chosen, and that there are partitions if it needs some.

        Raises:
            CommandFailed: that is not so.
        """
        ways = [self.to is not None, self.among is not None, self.even or bool(self.drain), self.plan is not None]
        if sum(ways) != 1:
            raise CommandFailed(
                "where shall replicas be?" if not any(ways) else "there are two answers to where replicas shall be",
                "one of --to 1,2,3, --among 1,2,3, --even or --drain BROKER, --plan FILE",
                USAGE,
            )
        if (self.to is not None or self.among is not None) and not places:
            raise CommandFailed("which partitions?", "TOPIC or TOPIC:PARTITION ...", USAGE)
        if self.plan is not None and places:
            raise CommandFailed("--plan FILE names the partitions itself", None, USAGE)
        if not 0 <= self.tolerance <= 1000:
            raise CommandFailed(f"--tolerance {self.tolerance:g} is not from 0 to 1000 percent", None, USAGE)


TARGET = MoveTarget()
Places = Annotated[list[str] | None, Parameter(help="TOPIC or TOPIC:PARTITION ...")]


@app.command
async def plan(
    places: Places = None,
    /,
    *,
    target: MoveTarget = TARGET,
    save: Annotated[str | None, Parameter(help="Write the plan into this file, for `ottla move run --plan`.")] = None,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show what would move, and the bytes of it; nothing is changed."""
    target.check(places)
    async with connect(connection) as cluster:
        moves = await _planned(cluster, places, target, output)
    _show_plan(moves, output)
    if save is not None:
        replace_file(save, write_moves({move.place: move.after for move in moves}))


@app.named("run")
async def run_(
    places: Places = None,
    /,
    *,
    target: MoveTarget = TARGET,
    throttle: Annotated[
        int | None,
        Parameter(help="Bytes a second that each broker may send and fetch for the moves; taken off at the end."),
    ] = None,
    wait: Annotated[bool, Parameter(help="End when the move has begun.")] = True,
    rollback: Annotated[str | None, Parameter(help="Write the replicas as they are now into this file.")] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Move replicas, and wait until they have moved. After Ctrl-C the brokers go on by themselves, and the command says what there is to do."""
    target.check(places)
    check_throttle(throttle)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            moves = await _planned(cluster, places, target, output)
        _show_plan(moves, output)
        if dry_run or not moves:
            note("nothing was changed (--dry-run)" if dry_run else "there is nothing to move")
            return
        if rollback is not None:
            replace_file(rollback, write_moves({move.place: move.before for move in moves}))
        confirm(f"move {counted(len(moves), 'partition')}?", yes)
        await start_moves(cluster, moves, throttle)
        if not wait:
            note("`ottla move show` shows how far they are" + _throttle_stays(throttle))
            return
        try:
            await _watched(cluster, {move.place: move.bytes for move in moves})
        except (asyncio.CancelledError, Failure):
            note(
                "the moves go on at the brokers: `ottla move show` shows them, `ottla move cancel` ends them"
                + _throttle_stays(throttle)
            )
            raise
        await finish_moves(cluster, moves, throttle is not None)
        note(f"moved {counted(len(moves), 'partition')}")


@app.command
async def show(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
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
    print_rows(rows, SHOW_COLUMNS, listing.output)


@app.named("wait")
async def wait_(*, connection: ConnectionOptions = CONNECTION) -> None:
    """Wait for all moves that go on, with rate and remaining time."""
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            ongoing = await list_reassignments(cluster)
            left = await left_to_move(cluster, ongoing) if ongoing else {}
        await _watched(cluster, {place: total for place, (_, total) in left.items()})
    note("nothing moves")


@app.command
async def cancel(
    places: PlacesOrAll = None,
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
            raise CommandFailed("none of these partitions is moving", "`ottla move show` shows what goes on")
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


async def _planned(
    cluster: ClusterClient, places: list[str] | None, target: MoveTarget, output: str
) -> list[PlannedMove]:
    """Return the moves to a target. For --even and --drain it first prints what each broker would lead and hold."""
    if target.plan is not None:
        return await moves_to(cluster, read_moves(target.plan))
    found = await places_of(cluster, places) if places else None
    if target.to is not None:
        return await moves_to(cluster, dict.fromkeys(found or (), read_brokers("--to", target.to)))
    if await list_reassignments(cluster):
        raise CommandFailed("partitions are moving", "`ottla move wait` waits for them")
    if target.among is not None:
        return await plan_moves(cluster, found, read_brokers("--among", target.among))
    return await _spread(cluster, found, target, output)


async def _spread(
    cluster: ClusterClient, places: list[TopicPartition] | None, target: MoveTarget, output: str
) -> list[PlannedMove]:
    racks, drained = await racks_of_brokers(cluster), set(target.drain or ())
    await check_brokers(cluster, drained)
    before = await replicas_of_all(cluster)
    sizes = partition_sizes(await replica_sizes(cluster, racks))
    takers = {node: rack for node, rack in racks.items() if node not in drained}
    if target.even:
        balance = plan_balance(before, sizes, takers, target.tolerance / 100, places)
        after, stuck = balance.replicas, balance.stuck
    else:
        drain = plan_drain(drained, before, takers, places)
        after, stuck = before | drain.moves, drain.stuck
    refuse_stuck(stuck)
    if output == "table":
        print_rows(load_rows(before, after, sizes, racks), LOAD_COLUMNS, output)
        print()
    return moves_between(before, after, sizes)


def load_rows(before: Replicas, after: Replicas, sizes: Mapping[TopicPartition, int], racks: Racks) -> list[Row]:
    """Return what each broker leads and holds, now and afterwards. A broker that is down and will hold nothing has a row too."""
    now = loads(before, sizes, racks)
    then = loads(after, sizes, now)
    return [
        {
            "broker": node,
            "rack": racks.get(node),
            **now[node]._asdict(),
            **{f"new_{name}": value for name, value in then[node]._asdict().items()},
        }
        for node in now
    ]


def _show_plan(moves: list[PlannedMove], output: str) -> None:
    print_rows([move.row() for move in moves], MOVE_COLUMNS, output)
    note(f"{counted(len(moves), 'partition')} to change, {size_text(sum(move.bytes for move in moves))} to move")


async def _watched(cluster: ClusterClient, totals: dict[TopicPartition, int]) -> None:
    clock = cluster.world.clock
    with ProgressLine("moving", sum(totals.values()), "bytes", clock.mono_ms()) as progress:
        await watch_moves(cluster, sorted(totals), totals, lambda done: progress.update(done, clock.mono_ms()))


def _throttle_stays(throttle: int | None) -> str:
    return "" if throttle is None else "; the throttle stays until `ottla move unthrottle`"
