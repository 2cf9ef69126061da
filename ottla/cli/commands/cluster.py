"""The commands of `ottla cluster`: info, health."""

from __future__ import annotations

from functools import partial

from cyclopts import App

from ottla.cli.application import CONNECTION, Connection, Output, connect, run
from ottla.cli.client import health
from ottla.cli.errors import OK, UNHEALTHY
from ottla.cli.output import note, print_rows
from ottla.protocol.messages.describe_quorum import PartitionDataResponse

app = App(name="cluster", version_flags=[], help="The cluster: who is in it, and is it healthy.")

INFO_COLUMNS = ("broker", "host", "port", "rack", "roles", "fenced")

main = partial(run, app)


@app.command
async def info(*, output: Output = "table", connection: Connection = CONNECTION) -> None:
    """Show the brokers and the quorum."""
    async with connect(connection) as cluster:
        described = await health.describe_cluster(cluster)
        quorum = await health.describe_quorum(cluster)
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
    if output == "table":
        note(f"cluster {described.cluster_id}, quorum leader {quorum.leader_id} in epoch {quorum.leader_epoch}")
    print_rows(rows, INFO_COLUMNS, output)


@app.command(name="health")
async def show_health(*, output: Output = "table", connection: Connection = CONNECTION) -> int:
    """Check the cluster; the exit code is 3 if a check fails."""
    async with connect(connection) as cluster:
        problems = await health.find_problems(cluster)
    if problems:
        print_rows([problem._asdict() for problem in problems], health.Problem._fields, output)
        return UNHEALTHY
    note("healthy")
    return OK


def _roles(node: int, quorum: PartitionDataResponse) -> list[str]:
    if all(voter.replica_id != node for voter in quorum.current_voters):
        return ["broker"]
    return ["broker", "leader" if node == quorum.leader_id else "voter"]
