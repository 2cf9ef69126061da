"""kafka-cluster: show the cluster's id and its endpoints, and remove the registration of a broker that has stopped for good."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.tool import TreeParser, connected, int32, table, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_cluster, unregister_broker
from ottla.client.failures import Failure

COLUMNS = ("ID", "HOST", "PORT", "RACK", "STATE", "ENDPOINT_TYPE")


def main(arguments: list[str]) -> int:
    parser = TreeParser("kafka-cluster", "The Kafka cluster tool.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("cluster-id", "Print the ID of a cluster."),
        ("unregister", "Unregister a broker."),
        ("list-endpoints", "List the endpoints of the cluster."),
    ):
        command = commands.add_parser(name, help=text)
        command.prog = parser.prog
        command.add_bootstrap()
        if name == "unregister":
            command.add_argument("--id", "-i", type=int32, required=True, metavar="ID")
        if name == "list-endpoints":
            command.add_argument("--include-fenced-brokers", action="store_true")
    options = connected(parser.parse_args(arguments))
    try:
        return with_cluster(options, lambda cluster: RUN[options.command](cluster, options))
    except Failure as failure:
        print(exception(failure), file=sys.stderr)
        return 1


async def _cluster_id(cluster: ClusterClient, options: argparse.Namespace) -> int:
    print(f"Cluster ID: {(await describe_cluster(cluster)).cluster_id}")
    return 0


async def _unregister(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await unregister_broker(cluster, options.id)
    print(f"Broker {options.id} is no longer registered.")
    return 0


async def _list_endpoints(cluster: ClusterClient, options: argparse.Namespace) -> int:
    rows: list[tuple[object, ...]] = [COLUMNS]
    for row in sorted((await describe_cluster(cluster)).brokers, key=lambda row: row.broker_id):
        if row.is_fenced and not options.include_fenced_brokers:
            continue
        state = "fenced" if row.is_fenced else "unfenced"
        rows.append((row.broker_id, row.host, row.port, row.rack or "null", state, "broker"))
    print("\n".join(table(rows, (10, 9, 10, 10, 10, 6))))
    return 0


RUN = {"cluster-id": _cluster_id, "unregister": _unregister, "list-endpoints": _list_endpoints}
