"""kafka-share-groups: list, describe and delete share groups, and reset or delete their offsets."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.shims.exceptions import message, reason, rejected
from ottla.cli.shims.group_commands import (
    delete_each,
    described,
    group_names,
    print_deletion,
    print_groups,
    run_command,
)
from ottla.cli.shims.java_times import datetime_ms
from ottla.cli.shims.offset_resets import assignment_text, listed, named_places, since
from ottla.cli.shims.tool import ToolParser, Unusable, table
from ottla.client import groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.groups import GroupDescription
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
SCENARIOS = ("to-datetime", "to-earliest", "to-latest")
STATES = ("Dead", "Empty", "Stable")


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-share-groups", "List, describe, delete share groups, or reset and delete their offsets.")
    parser.add_bootstrap()
    parser.flags(*ACTIONS, "members", "offsets", "verbose", "all-groups", "all-topics", "dry-run", "execute")
    parser.flags("to-earliest", "to-latest")
    parser.texts("to-datetime")
    parser.lists("group", "topic")
    parser.add_argument("--state", nargs="?", const="")
    parser.add_argument("--timeout", default="30000")
    options = parser.parse(arguments)
    check_options(parser, options)
    return run_command(parser, options, lambda cluster: _run(cluster, options), "share")


def check_options(parser: ToolParser, options: argparse.Namespace) -> None:
    has_scope = bool(options.group or options.all_groups)
    if options.describe and not has_scope:
        parser.usage_error("Option [describe] takes one of these options: [all-groups], [group]")
    if options.delete and not has_scope:
        parser.usage_error("Option [delete] takes the options [group] or [all-groups]")
    if sum(getattr(options, name.replace("-", "_")) for name in ACTIONS) != 1:
        parser.usage_error(f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}.")
    if options.describe and sum((options.members, options.offsets, options.state is not None)) > 1:
        parser.usage_error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
    if options.delete_offsets and not (options.group and options.topic):
        parser.usage_error("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.reset_offsets:
        if options.dry_run == options.execute:
            parser.usage_error("Option [reset-offsets] takes the option: [execute] or [dry-run]")
        if not options.group:
            parser.usage_error("Option [reset-offsets] takes the option: [group]")
        for scenario in SCENARIOS:
            parser.forbid(options, scenario, *(other for other in SCENARIOS if other != scenario))
    parser.forbid(options, "group", "all-groups")


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    action = next(name for name in ACTIONS if getattr(options, name.replace("-", "_")))
    return await RUN[action](cluster, options)


async def _names(cluster: ClusterClient, options: argparse.Namespace) -> list[str]:
    return await group_names(cluster, options, ["share"])


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await print_groups(cluster, "share", options.state, STATES)
    return 0


async def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    kinds = {group.group_id: group.group_type.lower() for group in await groups.list_groups(cluster)}
    names = await _names(cluster, options)
    rejected = {
        name: f"java.lang.IllegalArgumentException: Group '{name}' is not a share group."
        for name in names
        if kinds.get(name) != "share"
    }
    print_deletion("share", *await delete_each(cluster, names, rejected))
    return 0


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for name in sorted(await _names(cluster, options)):
        found = await described(cluster, name, groups.describe_share_group)
        if found.state.lower() == "empty" and (options.members or options.state is not None):
            print(f"\nShare group '{name}' has no active members.", file=sys.stderr)
        if options.members:
            _print(*_members(found, options.verbose))
        elif options.state is not None:
            _print(*await _state(cluster, found, options.verbose))
        else:
            rows, widths = await _offsets(cluster, found, options.verbose)
            if len(rows) == 1:
                print(f"\nShare group '{name}' has no offset information.")
            _print(rows, widths)
    return 0


Table = tuple[list[list[object]], list[int]]


def _print(rows: list[list[object]], widths: list[int]) -> None:
    if len(rows) > 1:
        print("\n" + "\n".join(table(rows, widths)))


def _members(group: GroupDescription, verbose: bool) -> Table:
    rows: list[list[object]] = [["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]]
    for member in group.members:
        who = [group.group, member.member_id, member.host, member.client_id, len(member.assigned)]
        rows.append([*who, assignment_text(member.assigned)])
    widths = [15, 15, 15, 15, 12, 0]
    if verbose:
        for row, cell in zip(rows, ("MEMBER-EPOCH", *(member.epoch for member in group.members)), strict=True):
            row.insert(5, cell)
        widths.insert(5, 13)
    return rows, widths


async def _state(cluster: ClusterClient, group: GroupDescription, verbose: bool) -> Table:
    node = await cluster.coordinator(group.group)
    host, port = cluster.brokers[node]
    rows: list[list[object]] = [["GROUP", "COORDINATOR (ID)", "STATE", "#MEMBERS"]]
    rows.append([group.group, f"{host}:{port}  ({node})", group.state, len(group.members)])
    widths = [15, 25, 15, 0]
    if verbose:
        rows[0][3:3] = ["GROUP-EPOCH", "ASSIGNMENT-EPOCH"]
        rows[1][3:3] = [group.epoch, group.target_epoch]
        widths[3:3] = [12, 17]
    return rows, widths


async def _offsets(cluster: ClusterClient, group: GroupDescription, verbose: bool) -> Table:
    rows: list[list[object]] = [["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]]
    widths = [15, 15, 10, 13, 0]
    if verbose:
        rows[0].insert(3, "LEADER-EPOCH")
        widths.insert(3, 13)
    for place, position in sorted((await groups.share_positions(cluster, group.group)).items()):
        shown = ["-" if value < 0 else value for value in (position.start_offset, position.lag)]
        epoch = [position.leader_epoch if position.start_offset >= 0 else "-"] if verbose else []
        rows.append([group.group, *place, *epoch, *shown])
    return rows, widths


async def _reset(cluster: ClusterClient, options: argparse.Namespace) -> int:
    (group,) = options.group[:1]
    if not (options.topic or options.all_topics):
        raise Unusable("Option [reset-offsets] takes one of these options: [all-topics], [topic]")
    if not any((options.to_datetime, options.to_earliest, options.to_latest)):
        raise Unusable("Option [reset-offsets] takes one of these options: [to-datetime], [to-earliest], [to-latest]")
    is_there = await _is_empty(cluster, group)
    if options.all_topics:
        places = sorted(await groups.share_positions(cluster, group)) if is_there else []
    else:
        places = await named_places(cluster, options.topic)
    offsets = await _new_offsets(cluster, options, places)
    if options.execute:
        await _set(cluster, group, offsets)
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    rows += [(group, *place, offset) for place, offset in sorted(offsets.items())]
    print("\n" + "\n".join(table(rows, (15, 15, 10, 15))))
    return 0


async def _is_empty(cluster: ClusterClient, group: str) -> bool:
    """Return True for a group without members, and False for a group that does not exist: offsets can be set before its first
    member joins.

    Raises:
        Unusable: it has members.
    """
    try:
        found = await groups.describe_share_group(cluster, group)
    except Failure as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise
    if found.state.lower() not in ("empty", "dead"):
        raise Unusable(f"Share group '{group}' is not empty.")
    return True


async def _new_offsets(
    cluster: ClusterClient, options: argparse.Namespace, places: list[TopicPartition]
) -> dict[TopicPartition, int]:
    if options.to_datetime is not None:
        return await since(cluster, places, datetime_ms(options.to_datetime))
    return await listed(cluster, places, topics.EARLIEST if options.to_earliest else topics.LATEST)


async def _set(cluster: ClusterClient, group: str, offsets: dict[TopicPartition, int]) -> None:
    results = await groups.set_share_positions(cluster, group, offsets)
    for _, (code, text) in sorted(results.items()):
        if code:
            raise rejected(ErrorCode(code), text or message(code))


async def _delete_offsets(cluster: ClusterClient, options: argparse.Namespace) -> int:
    (group,) = options.group[:1]
    try:
        results = await groups.delete_share_positions(cluster, group, options.topic)
    except Failure as failure:
        print(f"\nError: {reason(failure)}")
        results = dict.fromkeys(options.topic, (failure.code or 0, reason(failure)))
    rows = [("TOPIC", "STATUS")]
    rows += [(name, _status(*result)) for name, result in sorted(results.items())]
    print("\n" + "\n".join(table(rows, (15, 15))))
    return 0


def _status(code: int, text: str | None) -> str:
    return f"Error: {text or message(code)}" if code else "Successful"


RUN = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset-offsets": _reset,
    "delete-offsets": _delete_offsets,
}
