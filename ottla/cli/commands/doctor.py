"""The command `ottla doctor`: findings about the cluster, and about each step of the way from here to it, with their remedies."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import ADMIN, CONNECTION, LISTING, Admin, ConnectionOptions, ListingOptions, connect, run
from ottla.cli.doctor.cluster import check_cluster
from ottla.cli.doctor.connection import CLIENT_ID, ConnectionsLook, Passed
from ottla.cli.doctor.findings import DoctorFinding, exit_code, in_order
from ottla.cli.doctor.record import check_permissions, check_record
from ottla.cli.output import note, print_rows, printable
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure, counted

app = App("doctor", "Look for what is wrong between here and a cluster, and in it.")

COLUMNS = ("severity", "finding", "place", "problem", "exit_code")

main = partial(run, app)


@app.default
async def doctor(
    *,
    topic: Annotated[str | None, Parameter(help="Look also at what this user may do with this topic.")] = None,
    read_only: Annotated[
        bool, Parameter(help="Write no record: otherwise one goes to a topic that is deleted again.")
    ] = False,
    admin: Admin = ADMIN,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """Look at each step from here to the cluster, and at the cluster; docs/DOCTOR.md has all findings.

    The exit code is that of the worst finding: 10 to 17 between here and the cluster, 3 in the cluster, 0 for warnings and advice.
    """
    is_table = listing.output == "table"

    def passed(line: str) -> None:
        if is_table:
            note(f"ok: {line}")

    async with connect(connection, limited=False, client_id=CLIENT_ID) as cluster:
        found = in_order(await _findings(cluster, topic, read_only, admin, passed))
    if not is_table:
        print_rows([each.row() for each in found], (), listing.output)
    elif found:
        print_rows([each.row() for each in found], COLUMNS, listing.output)
        for kind in dict.fromkeys(each.kind for each in found):
            row = next(each for each in found if each.kind == kind).row()
            print(printable(f"{kind}: {row['remedy']}"))
    note(counted(len(found), "finding") if found else "nothing is wrong")
    return exit_code(found)


async def _findings(
    cluster: ClusterClient, topic: str | None, read_only: bool, admin: Admin, passed: Passed
) -> list[DoctorFinding]:
    """Look at one step after the other. If a step fails, those after it are not looked at."""
    connections = ConnectionsLook(cluster.world, cluster.security, cluster.timeout_ms, passed)
    servers = [await connections.bootstrap(address) for address in cluster.bootstrap]
    found = [each for findings in servers for each in findings]
    if all(any(each.kind != "certificate-expires" for each in findings) for findings in servers):
        return found
    try:
        async with cluster.limit():
            brokers = sorted((await cluster.metadata([])).brokers, key=lambda row: row.node_id)
        looks = (connections.advertised(broker, cluster.bootstrap) for broker in brokers)
        found += [each for findings in await asyncio.gather(*looks) for each in findings]
        if topic is not None:
            async with cluster.limit():
                found += await check_permissions(cluster, topic, passed)
        if not read_only:
            found += await check_record(cluster, passed)
        found += await check_cluster(cluster, admin.addresses(cluster), passed)
    except Failure as failure:  # the cluster has become unreachable meanwhile
        found.append(DoctorFinding("not-reachable", "cluster", failure.cause))
    return found
