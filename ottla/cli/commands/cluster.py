"""The commands of `ottla cluster`: info, health, may-stop."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, LISTING, ConnectionOptions, ListingOptions, Output, connect, named, run
from ottla.cli.errors import OK, UNHEALTHY, USAGE, CommandFailed
from ottla.cli.output import note, print_rows
from ottla.cli.problem_summary import summary
from ottla.client import cluster_state
from ottla.client.cluster import ClusterClient, NoConnection
from ottla.client.cluster_state import Problem, StopEffects, describe_quorum, effects_of_stop, find_problems
from ottla.client.connection import read_client_properties
from ottla.client.failures import counted
from ottla.protocol.messages.describe_quorum import PartitionDataResponse

app = App("cluster", "The cluster: who is in it, and is it healthy.")

#: The second look is so much later: replicas join the ISR within a second after they have caught up.
AGAIN_SECONDS = 1.0
INFO_COLUMNS = ("broker", "host", "port", "rack", "roles", "fenced")

main = partial(run, app)

Verbose = Annotated[
    bool,
    Parameter(name=("--verbose", "-v"), help="A line for each problem of each partition; JSON has these always."),
]


@app.command
async def info(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """Show the brokers and the quorum."""
    async with connect(connection) as cluster:
        described = await cluster_state.describe_cluster(cluster)
        quorum = await describe_quorum(cluster)
    rows = [
        {
            "broker": row.broker_id,
            "host": row.host,
            "port": row.port,
            "rack": row.rack,
            "roles": _roles(row.broker_id, quorum),
            "fenced": row.is_fenced,
            "cluster_id": described.cluster_id,
        }
        for row in sorted(described.brokers, key=lambda row: row.broker_id)
    ]
    if listing.output == "table":
        note(f"cluster {described.cluster_id}, quorum leader {quorum.leader_id} in epoch {quorum.leader_epoch}")
    print_rows(rows, INFO_COLUMNS, listing.output)


@app.named("health")
async def show_health(
    *, verbose: Verbose = False, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION
) -> int:
    """Check the cluster, and sum its problems up; the exit code is 3 if a check fails."""
    async with connect(connection) as cluster:
        problems = await find_problems(cluster)
    if problems:
        _show(problems, verbose, listing.output)
        return UNHEALTHY
    note("healthy")
    return OK


@app.named("may-stop")
async def may_stop(
    node: str,
    /,
    *,
    wait: Annotated[float, Parameter(name="--wait", help="Seconds to wait until it may.")] = 0.0,
    verbose: Verbose = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Check whether NODE may stop without making anything unavailable; the exit code is 3 if not.

    NODE is the id of a broker or controller, or its server.properties: then the command connects as this node does, unless it
    is given an address or --config; variables such as OTTLA_CONFIG do not count beside a file. Run it before each step of an update, as the service unit does.
    """
    given = [named(each) for each in (connection.bootstrap, connection.config, connection.context)]
    node_id, properties = _node(node, as_itself=not any(given))
    deadline = time.monotonic() + wait
    async with connect(replace(connection, timeout=connection.timeout + wait), properties=properties) as cluster:
        while True:
            stop = await _effects_of_stop(cluster, node_id)
            if not stop.now or time.monotonic() >= deadline:
                break
            await asyncio.sleep(AGAIN_SECONDS)
    for problem in stop.always:
        note(f"{problem.place} will be unavailable meanwhile: {problem.problem}")
    if stop.now:
        _show(stop.now, verbose, output)
        return UNHEALTHY
    note(f"node {node_id} may stop")
    return OK


def _show(problems: list[Problem], verbose: bool, output: str) -> None:
    rows, left_out = summary(problems, is_whole=verbose or output != "table")
    print_rows([row._asdict() for row in rows], Problem._fields, output)
    if left_out:
        note(f"{counted(left_out, 'other problem')}; -v shows all")
    elif len(rows) < len(problems):
        note(f"{len(problems)} problems in all; -v shows each")


async def _effects_of_stop(cluster: ClusterClient, node_id: int) -> StopEffects:
    """Return the effects of a stop. If a broker cannot be reached meanwhile, that is a reason to wait, too."""
    try:
        return await effects_of_stop(cluster, node_id)
    except NoConnection as fault:
        return StopEffects([Problem("cluster", fault.cause)], [])


def _node(text: str, as_itself: bool) -> tuple[int, dict[str, str] | None]:
    """Return the id of a node, and the client properties of its file."""
    if text.isascii() and text.isdigit():
        return int(text), None
    properties = read_client_properties(text)
    found = properties.get("node.id", properties.get("broker.id", ""))
    if not found.isascii() or not found.isdigit():
        raise CommandFailed(f"{text} is neither the id of a node nor a file with node.id", None, USAGE)
    if not as_itself:
        return int(found), None
    from ottla.client.security import client_properties  # imported late: it is slow, and only a file needs it

    try:
        return int(found), client_properties(properties)
    except ValueError as fault:
        raise CommandFailed(f"{text}: {fault}", None, USAGE) from None


def _roles(node: int, quorum: PartitionDataResponse) -> list[str]:
    if all(voter.replica_id != node for voter in quorum.current_voters):
        return ["broker"]
    return ["broker", "leader" if node == quorum.leader_id else "voter"]
