"""kafka-metadata-quorum: the state of the KRaft quorum, and its voters (KIP-853)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from contextlib import suppress

from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.tool import HelpfulParser, Unusable, connected, int32, tab_table, uuid_bytes, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import Quorum, add_voter, describe_cluster, describe_quorum_nodes, remove_voter
from ottla.client.failures import Failure
from ottla.protocol.messages.describe_quorum import ReplicaState
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.schema import ZERO_UUID
from ottla.server.address import NoAddress, parse_address

COLUMNS = ("NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status")


def main(arguments: list[str]) -> int:
    parser = HelpfulParser("kafka-metadata-quorum", "This tool describes kraft metadata quorum status.")
    parser.add_bootstrap()
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("describe", help="Describe the metadata quorum info")
    for name in ("status", "replication", "human-readable"):
        command.add_argument(f"--{name}", action="store_true")
    command = commands.add_parser("add-controller", help="Add a controller to the KRaft controller cluster")
    command.add_argument("--dry-run", action="store_true")
    command = commands.add_parser("remove-controller", help="Remove a controller from the KRaft controller cluster")
    command.add_argument("--controller-id", "-i", type=int32, required=True)
    command.add_argument("--controller-directory-id", "-d", required=True)
    command.add_argument("--dry-run", action="store_true")
    options = parser.parse_args(arguments)
    try:
        _check(options)
        connected(options)
        return with_cluster(options, lambda cluster: RUN[options.command](cluster, options))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(exception(failure), file=sys.stderr)
    return 1


def _check(options: argparse.Namespace) -> None:
    if options.command == "describe":
        if options.status and options.replication:
            raise Unusable("Only one of --status or --replication should be specified with describe sub-command")
        if options.status and options.human_readable:
            raise Unusable("The option --human-readable is only supported along with --replication")
        if not (options.status or options.replication):
            raise Unusable("One of --status or --replication must be specified with describe sub-command")
    if options.command == "add-controller" and options.command_config is None:
        raise Unusable(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    quorum = await describe_quorum_nodes(cluster)
    if options.replication:
        now_ms = cluster.world.clock.wall_ms() if options.human_readable else None
        print("\n".join(_replication(quorum, now_ms)))
        return 0
    for name, value in status(quorum, (await describe_cluster(cluster)).cluster_id).items():
        print(f"{name + ':':<23} {value}")
    return 0


def status(quorum: Quorum, cluster_id: str) -> dict[str, object]:
    """Return the fields of --status.

    The lag is that of the voter with the shortest log; its time is -1 if the broker does not know it.
    """
    partition = quorum.partition
    ends = {row.replica_id: row for row in partition.current_voters}
    leader = ends[partition.leader_id]
    slowest = min(partition.current_voters, key=lambda row: row.log_end_offset)
    lag_ms = 0
    if slowest is not leader and slowest.log_end_offset != leader.log_end_offset:
        known = min(leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp) >= 0
        lag_ms = leader.last_caught_up_timestamp - slowest.last_caught_up_timestamp if known else -1
    return {
        "ClusterId": cluster_id,
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _members(quorum, partition.current_voters),
        "CurrentObservers": _members(quorum, partition.observers),
    }


def _members(quorum: Quorum, rows: Iterable[ReplicaState]) -> str:
    shown = []
    for row in rows:
        parts = [f'"id": {row.replica_id}']
        if row.replica_directory_id != ZERO_UUID:
            parts.append(f'"directoryId": "{uuid_to_str(row.replica_directory_id)}"')
        if endpoints := quorum.endpoints.get(row.replica_id):
            parts.append('"endpoints": [{}]'.format(", ".join(f'"{endpoint}"' for endpoint in endpoints)))
        shown.append(f"{{{', '.join(parts)}}}")
    return f"[{', '.join(shown)}]"


def _replication(quorum: Quorum, now_ms: int | None) -> list[str]:
    """Return the table. If the present time is given, times are shown as ages."""

    def time(value: int) -> str:
        return str(value) if now_ms is None or value < 0 else f"{max(0, now_ms - value)} ms ago"

    partition = quorum.partition
    leader = next(row for row in partition.current_voters if row.replica_id == partition.leader_id)
    followers = [row for row in partition.current_voters if row is not leader]
    rows: list[tuple[str, ...]] = [COLUMNS]
    for status, replicas in (("Leader", [leader]), ("Follower", followers), ("Observer", partition.observers)):
        for row in replicas:
            lag = leader.log_end_offset - row.log_end_offset
            times = (time(row.last_fetch_timestamp), time(row.last_caught_up_timestamp))
            directory = uuid_to_str(row.replica_directory_id)
            rows.append((str(row.replica_id), directory, str(row.log_end_offset), str(lag), *times, status))
    return tab_table(rows)


async def _add(cluster: ClusterClient, options: argparse.Namespace) -> int:
    from ottla.storage.directories.log_dirs import read_meta_properties

    properties = options.client_properties
    if "controller" not in [role.strip() for role in properties.get("process.roles", "").split(",")]:
        raise Unusable("process.roles did not contain controller")
    if not properties.get("node.id", "").isdecimal():
        raise Unusable("node.id not found in configuration file. Is this a valid controller configuration file?")
    directory = (
        properties.get("metadata.log.dir") or properties.get("log.dirs", properties.get("log.dir", "")).split(",")[0]
    )
    if not directory:
        raise Unusable(
            "Neither metadata.log.dir nor log.dirs was found. Is this a valid controller configuration file?"
        )
    meta = read_meta_properties(cluster.world.files, directory)
    if meta is None or meta.directory_id is None:
        raise Unusable(f"No directory id found in {directory}/meta.properties")
    listeners = _controller_listeners(properties)
    node, directory_id = int(properties["node.id"]), meta.directory_id
    if not options.dry_run:
        await add_voter(cluster, node, directory_id, listeners)
    verb = "DRY RUN of adding" if options.dry_run else "Added"
    shown = " and endpoints: " + ", ".join(f"{name}://{host}:{port}" for name, host, port in listeners)
    print(f"{verb} controller {node} with directory id {uuid_to_str(directory_id)}{shown}")
    return 0


def _controller_listeners(properties: dict[str, str]) -> list[tuple[str, str, int]]:
    names = {name.strip() for name in properties.get("controller.listener.names", "").split(",")}
    found: dict[str, tuple[str, str, int]] = {}
    for key in ("listeners", "advertised.listeners"):
        for text in filter(None, properties.get(key, "").split(",")):
            name = text.strip().partition("://")[0]
            with suppress(NoAddress):
                host, port = parse_address(text, any_host=True, port_min=0)
                if name in names:
                    found[name] = (name, host or "localhost", port)
    if not found:
        raise Unusable(
            "controller.listener.names not found, or none of them has a listener. Is this a valid controller configuration file?"
        )
    return list(found.values())


async def _remove(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if options.controller_id < 0:
        raise Unusable(f"Invalid negative --controller-id: {options.controller_id}")
    try:
        directory_id = uuid_bytes(options.controller_directory_id)
    except ValueError as wrong:
        raise Unusable(f"Failed to parse --controller-directory-id: {wrong}") from None
    if not options.dry_run:
        await remove_voter(cluster, options.controller_id, directory_id)
    verb = "DRY RUN of removing " if options.dry_run else "Removed "
    print(f"{verb}KRaft controller {options.controller_id} with directory id {uuid_to_str(directory_id)}")
    return 0


RUN = {"describe": _describe, "add-controller": _add, "remove-controller": _remove}
