"""The command `ottla rebalance`: a plan that evens replicas, bytes and leaders over brokers and racks, and its run."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, ConnectionOptions, Output, Yes, connect, run
from ottla.cli.commands.reassign import Save, Throttle, Wait, carry_out, show_plan
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.client.balance import TOLERANCE, loads, plan_balance
from ottla.client.move_file import moves_between
from ottla.client.moves import (
    check_throttle,
    partition_sizes,
    racks_of_brokers,
    refuse_stuck,
    replica_sizes,
    replicas_of_all,
)
from ottla.client.reassignments import list_reassignments
from ottla.client.topics import places_of

app = App(name="rebalance", version_flags=[], help="Even replicas, bytes and leaders over brokers and racks.")

LOAD_COLUMNS = ("broker", "rack", "leaders", "new_leaders", "replicas", "new_replicas", "bytes", "new_bytes")

main = partial(run, app)


@app.default
async def rebalance(
    places: Annotated[
        list[str] | None, Parameter(consume_multiple=True, help="TOPIC or TOPIC:PARTITION ...; default: all.")
    ] = None,
    /,
    *,
    drain: Annotated[
        list[int] | None, Parameter(help="Brokers that shall hold nothing: before they are taken away.", negative="")
    ] = None,
    tolerance: Annotated[
        float, Parameter(help="Percent above the mean at which the bytes of a broker count as even.")
    ] = TOLERANCE * 100,
    execute: Annotated[
        bool, Parameter(name="--run", negative="", help="Carry the plan out, and not only show it.")
    ] = False,
    throttle: Throttle = None,
    wait: Wait = True,
    save: Save = None,
    yes: Yes = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show a plan that evens the brokers: what each would lead and hold, and the moves with their bytes. --run carries it out."""
    check_throttle(throttle)
    if not 0 <= tolerance <= 1000:
        raise CommandFailed(f"--tolerance {tolerance:g} is not from 0 to 1000 percent", None, USAGE)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            racks = await racks_of_brokers(cluster)
            if unknown := sorted(set(drain or ()) - {*racks, *cluster.brokers}):
                raise CommandFailed(f"there is no broker {unknown[0]}", "`ottla broker list`", USAGE)
            among = None if places is None else await places_of(cluster, places)
            if await list_reassignments(cluster):
                raise CommandFailed("partitions are moving", "`ottla reassign watch` waits for them")
            before = await replicas_of_all(cluster)
            sizes = partition_sizes(await replica_sizes(cluster, racks))
        takers = {node: rack for node, rack in racks.items() if node not in (drain or ())}
        balance = plan_balance(before, sizes, takers, tolerance / 100, among)
        refuse_stuck(balance.stuck)
        now, then = loads(before, sizes, racks), loads(balance.replicas, sizes, racks)
        if output == "table":
            rows = [
                {
                    "broker": node,
                    "rack": racks.get(node),
                    **now[node]._asdict(),
                    **{f"new_{name}": value for name, value in then[node]._asdict().items()},
                }
                for node in now
            ]
            print_rows(rows, LOAD_COLUMNS, output)
            print()
        moves = moves_between(before, balance.replicas, sizes)
        show_plan(moves, output, save)
        if not execute:
            note("nothing was changed; --run carries it out" if moves else "the brokers are even")
            return
        await carry_out(cluster, moves, throttle, wait=wait, dry_run=False, yes=yes)
