"""kafka-consumer-groups: --list, and --describe with offsets, --members or --state. Changes are made with `ottla group`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable

from ottla.cli.client import groups, topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.groups import GroupDescription
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.tool import Parser, reason, with_cluster
from ottla.protocol.errors import ErrorCode

NOT_HERE = ("delete", "reset-offsets", "delete-offsets")
ROW = "{:<15} {:<15} {:<10} {:<15} {:<15} {:<15} {:<15} {:<15} {}"


def main(arguments: list[str]) -> int:
    parser = Parser("kafka-consumer-groups", "List and describe consumer groups.")
    parser.add_bootstrap()
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--describe", action="store_true")
    for name in ("members", "offsets", "verbose", "all-groups", *NOT_HERE):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--state", nargs="?", const="")
    parser.add_argument("--type", nargs="?", const="")
    parser.add_argument("--group", action="append", default=[])
    parser.add_argument("--timeout", type=int, default=30_000)
    options = parser.parse(arguments)
    asked = [name for name in NOT_HERE if getattr(options, name.replace("-", "_"))]
    if asked:
        parser.error(f"--{asked[0]} is not supported here: see `ottla group --help`")
    if options.list == options.describe:
        parser.error(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, --delete-offsets."
        )
    if options.describe and not options.group and not options.all_groups:
        parser.error("Option [describe] takes one of these options: [all-groups], [group]")
    work = list_groups if options.list else describe
    try:
        return with_cluster(options, lambda cluster: work(cluster, options), options.timeout)
    except CommandFailed as failure:
        print(f"\nError: Executing consumer group command failed due to {reason(failure)}")
        # Kafka's tool exits with 0 after this, too; scripts that check the exit code expect that.
        return 0 if failure.code is not None else 1


async def list_groups(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found = await groups.list_groups(cluster)
    if options.state is None and options.type is None:
        for group in found:
            print(group.group_id)
        return 0
    states = {name.strip().lower() for name in (options.state or "").split(",") if name.strip()}
    width = max([15, *(len(group.group_id) for group in found)])
    print(f"{'GROUP':<{width}} {'STATE':<15}".rstrip())
    for group in found:
        if not states or group.group_state.lower() in states:
            print(f"{group.group_id:<{width}} {group.group_state:<15}".rstrip())
    return 0


async def describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    names: Iterable[str] = options.group
    if options.all_groups:
        names = [group.group_id for group in await groups.list_groups(cluster)]
    for name in names:
        try:
            found = await groups.describe_group(cluster, name)
        except CommandFailed as failure:
            if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
                text = f"org.apache.kafka.common.errors.GroupIdNotFoundException: Group {name} not found."
                raise CommandFailed(f"group: {text} (GROUP_ID_NOT_FOUND)", code=failure.code) from None
            raise
        if found.state.lower() in ("empty", "dead"):
            print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
        if options.members:
            _members(found)
        elif options.state is not None:
            await _state(cluster, found)
        else:
            await _offsets(cluster, found)
    return 0


async def _offsets(cluster: ClusterClient, group: GroupDescription) -> None:
    committed = await groups.committed_offsets(cluster, group.group)
    owners = {place: member for member in group.members for place in member.assigned}
    places = sorted(committed.keys() | owners.keys())
    if not places:
        return
    ends = await topics.end_offsets(cluster, places)
    width = max(15, *(len(topic) for topic, _ in places))
    row = ROW.replace("{:<15} {:<15} {:<10}", f"{{:<{max(15, len(group.group))}}} {{:<{width}}} {{:<10}}", 1)
    print()
    print(
        row.format(
            "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"
        )
    )
    for place in places:
        offset, end = committed.get(place), ends.get(place)
        lag = "-" if offset is None or end is None else max(0, end - offset)
        owner = owners.get(place)
        who = ("-", "-", "-") if owner is None else (owner.member_id, owner.host, owner.client_id)
        print(
            row.format(group.group, *place, "-" if offset is None else offset, "-" if end is None else end, lag, *who)
        )


def _members(group: GroupDescription) -> None:
    print()
    print("{:<15} {:<15} {:<15} {:<15} {:<15}".format("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"))
    for member in group.members:
        columns = (group.group, member.member_id, member.host, member.client_id)
        print("{:<15} {:<15} {:<15} {:<15} ".format(*columns) + f"{len(member.assigned):<15}")


async def _state(cluster: ClusterClient, group: GroupDescription) -> None:
    node = await cluster.coordinator(group.group)
    host, port = cluster.brokers[node]
    print()
    print(
        "{:<15} {:<25} {:<20} {:<20} {}".format("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    )
    where = f"{host}:{port}  ({node})"
    print(f"{group.group:<15} {where:<25} {group.assignor or '-':<20} {group.state:<20} {len(group.members)}")
