"""kafka-consumer-groups: list, describe and delete groups. Their offsets are changed in `offset_resets.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable

from ottla.cli.shims import offset_resets
from ottla.cli.shims.group_commands import (
    chosen,
    delete_each,
    described,
    group_names,
    print_deletion,
    run_command,
)
from ottla.cli.shims.tool import ToolParser, given, table
from ottla.client import group_offsets, groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.groups import GroupDescription, GroupMember
from ottla.client.partitions import TopicPartition
from ottla.server.extras import compiled

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
SCOPES = ("group", "all-groups")
STATES = ("CompletingRebalance", "Reconciling", "PreparingRebalance", "Stable", "Assigning", "Empty", "Dead")
TYPES = ("Consumer", "Classic")
REBALANCING = ("preparingrebalance", "completingrebalance", "assigning", "reconciling")
NO_ACTION = (
    "WARN: No action will be performed as the --execute option is missing. In version 5.0, this command will require "
    "either --dry-run or --execute to be specified. You should add the --dry-run option explicitly if you are scripting "
    "this command and want to keep the current default behavior without prompting."
)
#: Messages of RE2, and those of its Java translation (RE2J) that differ.
RE2J = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "regexp/syntax: internal error",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
OFFSETS = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID")
OFFSET_WIDTHS = (15, 15, 10, 15, 15, 15, 15, 15, 0)


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-consumer-groups", "List, describe, delete groups, or reset and delete their offsets.")
    parser.add_bootstrap()
    parser.flags(*(name for name in ACTIONS if name != "validate-regex"))
    parser.flags("members", "offsets", "verbose", "all-groups", "all-topics", "dry-run", "execute", "export")
    parser.flags("to-earliest", "to-latest", "to-current")
    parser.texts("to-offset", "shift-by", "to-datetime", "by-duration", "from-file", "validate-regex")
    parser.lists("group", "topic")
    parser.add_argument("--state", nargs="?", const="")
    parser.add_argument("--type", nargs="?", const="")
    parser.add_argument("--timeout", default="30000")
    options = parser.parse(arguments)
    check_options(parser, options)
    return run_command(parser, options, lambda cluster: _run(cluster, options), "consumer")


def check_options(parser: ToolParser, options: argparse.Namespace) -> None:
    """End the tool for options that do not go together, with Kafka's message for the first of them."""
    if options.describe:
        _one_of(parser, options, "describe")
        if sum((options.members, options.offsets, options.state is not None)) > 1:
            parser.usage_error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.state:
            parser.usage_error("Option [describe] does not take a value for [state]")
    if options.delete:
        _one_of(parser, options, "delete")
        if options.topic:
            parser.usage_error("The consumer does not support topic-specific offset deletion from a consumer group.")
    if options.delete_offsets and not (options.group and options.topic):
        parser.usage_error("Option [delete-offsets] takes the following options: [group], [topic]")
    if options.reset_offsets:
        if options.dry_run and options.execute:
            parser.usage_error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
        if not (options.dry_run or options.execute):
            print(NO_ACTION, file=sys.stderr)
        _one_of(parser, options, "reset-offsets")
        for scenario in sorted(offset_resets.SCENARIOS):
            parser.forbid(options, scenario, *(other for other in offset_resets.SCENARIOS if other != scenario))
    parser.forbid(options, "group", "all-groups")
    actions = [name for name in ACTIONS if given(options, name)]
    if len(actions) != 1:
        parser.usage_error(f"Command must include exactly one action: {', '.join(f'--{name}' for name in ACTIONS)}")


def _one_of(parser: ToolParser, options: argparse.Namespace, action: str) -> None:
    if not any(given(options, scope) for scope in SCOPES):
        shown = ", ".join(f"[{scope}]" for scope in SCOPES)
        parser.usage_error(f"Option [{action}] takes one of these options: {shown}")


async def _run(cluster: ClusterClient, options: argparse.Namespace) -> int:
    if options.list:
        return await list_groups(cluster, options)
    if options.describe:
        return await describe(cluster, options)
    if options.delete:
        deleted, failed = await delete_each(cluster, await names_of(cluster, options))
        print_deletion("consumer", deleted, failed, separator=", ")
        return 0
    if options.reset_offsets:
        return await offset_resets.reset(cluster, options, await names_of(cluster, options))
    if options.delete_offsets:
        return await offset_resets.delete(cluster, options)
    return await _validate_regex(cluster, options.validate_regex)


async def names_of(cluster: ClusterClient, options: argparse.Namespace) -> list[str]:
    return await group_names(cluster, options, [kind.lower() for kind in TYPES])


# -- List -------------------------------------------------------------------------------------------------------------


async def list_groups(cluster: ClusterClient, options: argparse.Namespace) -> int:
    states = chosen(options.state, STATES, "Invalid state list '{}'. Valid states are: {}")
    types = chosen(options.type, TYPES, "Invalid types list '{}'. Valid types are: {}")
    if options.state is None and options.type is None:
        for group in await groups.list_groups(cluster):
            if group.group_type.capitalize() in TYPES:
                print(group.group_id)
        return 0
    rows: list[list[str]] = [["GROUP"]]
    rows[0] += ["TYPE"] if options.type is not None else []
    rows[0] += ["STATE"] if options.state is not None else []
    for group in await groups.list_groups(cluster):
        kind, state = group.group_type.capitalize(), group.group_state
        if kind in (types or TYPES) and (not states or state in states):
            row = [group.group_id]
            row += [kind] if options.type is not None else []
            row += [state] if options.state is not None else []
            rows.append(row)
    width = max(15, *(len(row[0]) for row in rows)) + 10
    print("\n".join(table(rows, (width, 20, 20)[: len(rows[0])])))
    return 0


async def _validate_regex(cluster: ClusterClient, text: str) -> int:
    try:
        compiled(text)  # with the broker's engine
    except ValueError as wrong:
        why = str(wrong)
        said = next((theirs for ours, theirs in RE2J.items() if why.startswith(ours)), why.partition(":")[0])
        print(f"The regular expression `{text}` is invalid: {said}.")
    else:
        print(f"The regular expression `{text}` is valid.")
    return 0


# -- Describe ---------------------------------------------------------------------------------------------------------


async def describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for name in sorted(await names_of(cluster, options)):
        found = await described(cluster, name, groups.describe_group)
        state = found.state.lower()
        if state == "empty":
            print(f"\nConsumer group '{name}' has no active members.", file=sys.stderr)
        elif state in REBALANCING:
            print(f"\nWarning: Consumer group '{name}' is rebalancing.", file=sys.stderr)
        if options.members:
            _print(_members(found, options.verbose))
        elif options.state is not None:
            await _state(cluster, found, options.verbose)
        else:
            await _offsets(cluster, found, options.verbose)
    return 0


def _print(lines: Iterable[str]) -> None:
    print()
    for line in lines:
        print(line)


async def _offsets(cluster: ClusterClient, group: GroupDescription, verbose: bool) -> None:
    committed = await group_offsets.committed_positions(cluster, group.group)
    owners: dict[TopicPartition, GroupMember] = {place: member for member in group.members for place in member.assigned}
    places = sorted(committed.keys() | owners.keys())
    idle = [member for member in group.members if not member.assigned]
    if not places and not idle:
        return
    ends = await topics.end_offsets(cluster, places)
    rows: list[list[object]] = [list(OFFSETS)]
    for place in places:
        position, end = committed.get(place), ends.get(place)
        offset = None if position is None else position.offset
        lag = None if offset is None or end is None else max(0, end - offset)
        owner = owners.get(place)
        who = ("-", "-", "-") if owner is None else (owner.member_id, owner.host, owner.client_id)
        rows.append([group.group, *place, *map(_or_dash, (offset, end, lag)), *who])
    rows += [[group.group, *["-"] * 5, member.member_id, member.host, member.client_id] for member in idle]
    widths = list(OFFSET_WIDTHS)
    if verbose:
        epochs = [committed[place].leader_epoch if place in committed else None for place in places]
        shown = ["LEADER-EPOCH", *(map(_or_dash, epochs)), *["-"] * len(idle)]
        for row, epoch in zip(rows, shown, strict=True):
            row.insert(3, epoch)
        widths.insert(3, 15)
    _print(table(rows, widths))


def _or_dash(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)


def _members(group: GroupDescription, verbose: bool) -> list[str]:
    columns: list[tuple[str, int, Callable[[GroupMember], object]]] = [
        ("GROUP", 15, lambda member: group.group),
        ("CONSUMER-ID", 15, lambda member: member.member_id),
        ("HOST", 15, lambda member: member.host),
        ("CLIENT-ID", 15, lambda member: member.client_id),
        ("#PARTITIONS", 15, lambda member: len(member.assigned)),
    ]
    if any(member.instance_id for member in group.members):
        columns.insert(2, ("GROUP-INSTANCE-ID", 17, lambda member: member.instance_id or ""))
    if verbose:
        columns += [
            ("CURRENT-EPOCH", 15, lambda member: _or_dash(member.epoch)),
            ("CURRENT-ASSIGNMENT", 20, lambda member: offset_resets.assignment_text(member.assigned)),
            ("TARGET-EPOCH", 15, lambda member: _or_dash(group.target_epoch)),
            (
                "TARGET-ASSIGNMENT",
                20,
                lambda member: "" if member.epoch < 0 else offset_resets.assignment_text(member.target),
            ),
        ]
    rows: list[list[object]] = [[title for title, _, _ in columns]]
    rows += [[cell(member) for _, _, cell in columns] for member in group.members]
    return table(rows, [width for _, width, _ in columns])


async def _state(cluster: ClusterClient, group: GroupDescription, verbose: bool) -> None:
    node = await cluster.coordinator(group.group)
    host, port = cluster.brokers[node]
    rows: list[list[object]] = [["GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS"]]
    rows.append([group.group, f"{host}:{port}  ({node})", group.assignor or "-", group.state, len(group.members)])
    widths = [15, 25, 20, 20, 0]
    if verbose:
        for row, cells in zip(
            rows,
            (("GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"), (_or_dash(group.epoch), _or_dash(group.target_epoch))),
            strict=True,
        ):
            row[4:4] = cells
        widths[4:4] = [15, 25]
    _print(table(rows, widths))
