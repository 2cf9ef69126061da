"""kafka-streams-groups: list, describe and delete streams groups. Their offsets are changed in `streams_offsets.py`."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from ottla.cli.shims import streams_offsets
from ottla.cli.shims.exceptions import exception, execution_exception, reason
from ottla.cli.shims.group_commands import (
    SCOPES,
    delete_each,
    described,
    group_names,
    print_deletion,
    print_groups,
)
from ottla.cli.shims.offset_resets import listed
from ottla.cli.shims.tool import ToolParser, Unusable, given, int64, table, with_cluster
from ottla.client import group_offsets, groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.shared_structs import TaskIds
from ottla.protocol.messages.streams_group_describe import Assignment, DescribedGroup

ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets")
STATES = ("Empty", "NotReady", "Stable", "Assigning", "Reconciling", "Dead")
#: Only one of these options may be given. The order is that in which Kafka's tool looks for two of them.
SCENARIOS = (
    "to-offset", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current", "shift-by", "from-file",
)  # fmt: skip


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-streams-groups", "This tool helps to list, or describe streams groups.")
    parser.add_bootstrap()
    parser.flags(*ACTIONS, "members", "offsets", "verbose", "all-groups", "all-input-topics", "dry-run", "execute")
    parser.flags("export", "to-earliest", "to-latest", "to-current", "delete-all-internal-topics")
    parser.texts("to-offset", "shift-by", "to-datetime", "by-duration", "from-file")
    parser.lists("group", "input-topic", "delete-internal-topic")
    parser.add_argument("--state", nargs="?", const="")
    parser.add_argument("--timeout", type=int64, default=30_000)
    options = parser.parse(arguments)
    check_options(parser, options)
    action = next(name for name in ACTIONS if given(options, name))
    try:
        return with_cluster(options, lambda cluster: RUN[action](cluster, options), options.timeout)
    except Unusable as wrong:
        parser.usage_error(str(wrong))
    except Failure as failure:
        print(f"\nError: Executing streams group command failed due to {_text(action, failure)}")
        return 1


def _text(action: str, failure: Failure) -> str:
    """Return the message with the exception that Kafka's tool prints for the failure."""
    if action == "describe":
        return exception(failure)
    if action == "reset-offsets" and failure.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return reason(failure)
    return execution_exception(failure)


def check_options(parser: ToolParser, options: argparse.Namespace) -> None:
    """End the tool for options that do not go together, with Kafka's message for the first of them."""
    has_scope = bool(options.group or options.all_groups)
    if options.describe:
        if not has_scope:
            parser.usage_error(f"Option [describe] takes one of these options: {SCOPES}")
        if sum((options.members, options.offsets, options.state is not None)) > 1:
            parser.usage_error("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if options.state:
            parser.usage_error("Option [describe] does not take a value for [state]")
    if options.delete:
        if not has_scope:
            parser.usage_error(f"Option [delete] takes one of these options: {SCOPES}")
        if options.input_topic or options.all_input_topics:
            parser.usage_error("Kafka Streams does not support topic-specific offset deletion from a streams group.")
    if options.delete_offsets:
        _check_delete_offsets(parser, options)
    if options.reset_offsets:
        _check_reset(parser, options)
    _check_internal_topics(parser, options)
    if (options.dry_run or options.execute) and not options.reset_offsets:
        parser.usage_error("Only Option [reset-offsets] accepts [execute] or [dry-run]")
    parser.forbid(options, "list", "members", "offsets")
    parser.forbid(options, "group", "all-groups", "list")
    parser.forbid(options, "input-topic", "list", "describe", "delete")
    if sum(given(options, name) for name in ACTIONS) != 1:
        shown = ", ".join(f"--{name}" for name in ACTIONS[:-1])
        parser.usage_error(f"Command must include exactly one action: {shown}, or --{ACTIONS[-1]}.")


def _check_delete_offsets(parser: ToolParser, options: argparse.Namespace) -> None:
    if not (options.group and (options.input_topic or options.all_input_topics)):
        parser.usage_error(
            "Option [delete-offsets] takes the [group] and one of these options: [all-input-topics], [input-topic]"
        )
    if len(options.group) > 1:
        shown = ", ".join(options.group)
        parser.usage_error(f"Option [delete-offsets] supports only one [group] at a time, but found: [{shown}]")


def _check_reset(parser: ToolParser, options: argparse.Namespace) -> None:
    if options.dry_run and options.execute:
        parser.usage_error("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not (options.dry_run or options.execute):
        parser.usage_error("Option [reset-offsets] takes the option: [execute] or [dry-run]")
    if not (options.group or options.all_groups):
        parser.usage_error(f"Option [reset-offsets] takes one of these options: {SCOPES}")
    for scenario in SCENARIOS:
        parser.forbid(options, scenario, *(other for other in SCENARIOS if other != scenario))


def _check_internal_topics(parser: ToolParser, options: argparse.Namespace) -> None:
    if options.delete_all_internal_topics:
        if not (options.reset_offsets or options.delete):
            shown = "[delete], [reset-offsets]"
            parser.usage_error(f"Option [delete-all-internal-topics] takes one of these options: {shown}")
        if options.reset_offsets and not options.execute:
            parser.usage_error("Option [delete-all-internal-topics] takes [execute] when [reset-offsets] is used.")
    elif options.delete_internal_topic and not (options.reset_offsets and options.execute):
        parser.usage_error("Option [delete-internal-topic] takes [reset-offsets] when [execute] is used.")


async def _names(cluster: ClusterClient, options: argparse.Namespace) -> list[str]:
    return await group_names(cluster, options, ["streams"])


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await print_groups(cluster, "streams", options.state, STATES)
    return 0


# -- Describe ---------------------------------------------------------------------------------------------------------


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for name in await _names(cluster, options):
        group = await described(cluster, name, groups.describe_streams_group)
        if options.state is not None:
            await _state(cluster, group, options.verbose)
        elif options.members:
            _members(group, options.verbose)
        else:
            await _offsets(cluster, group, options.verbose)
    return 0


def _print(group: DescribedGroup, rows: list[list[object]], widths: Iterable[int]) -> None:
    if group.group_state == "Dead":
        print(f"\nError: Streams group '{group.group_id}' does not exist.")
    elif group.group_state == "Empty":
        print(f"\nError: Streams group '{group.group_id}' has no active members.")
    if rows:
        print("\n".join(table(rows, list(widths))))


def _tasks(kind: str, tasks: Iterable[TaskIds]) -> str:
    shown = "".join(f"{row.subtopology_id}:[{','.join(map(str, row.partitions))}]; " for row in tasks)
    return f"{kind}: {shown}" if shown else ""


def _assignment(assignment: Assignment, prefix: str = "") -> str:
    kinds = (assignment.active_tasks, assignment.standby_tasks, assignment.warmup_tasks)
    return "".join(
        _tasks(f"{prefix}{kind}", tasks) for kind, tasks in zip(("ACTIVE", "STANDBY", "WARMUP"), kinds, strict=True)
    )


def _members(group: DescribedGroup, verbose: bool) -> None:
    if not group.members:
        return
    rows: list[list[object]] = [["GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS"]]
    for member in group.members:
        shown = _assignment(member.assignment) + (_assignment(member.target_assignment, "TARGET-") if verbose else "")
        rows.append([group.group_id, member.member_id, member.process_id, member.client_id, shown])
    widths = [15, 15, 15, 15, 0]
    if verbose:
        # Kafka's format has no space between the topology's epoch and the member.
        ids = [str(row[1]) for row in rows]
        width = max(15, *map(len, ids))
        topology = 0 if group.topology is None else group.topology.epoch
        rows[0][1:2] = [
            "TARGET-ASSIGNMENT-EPOCH",
            f"{'TOPOLOGY-EPOCH':15}{ids[0]:{width}}",
            "MEMBER-PROTOCOL",
            "MEMBER-EPOCH",
        ]
        for row, member, name in zip(rows[1:], group.members, ids[1:], strict=True):
            protocol = "classic" if member.is_classic else "streams"
            row[1:2] = [group.assignment_epoch, f"{topology:<15}{name:{width}}", protocol, member.member_epoch]
        widths[1:2] = [25, 0, 15, 15]
    _print(group, rows, widths)


async def _state(cluster: ClusterClient, group: DescribedGroup, verbose: bool) -> None:
    node = await cluster.coordinator(group.group_id)
    host, port = cluster.brokers[node]
    rows: list[list[object]] = [["GROUP", "COORDINATOR (ID)", "STATE", "#MEMBERS"]]
    rows.append([group.group_id, f"{host}:{port} ({node})", group.group_state, len(group.members)])
    widths = [15, 25, 25, 0]
    if verbose:
        rows[0][3:3] = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"]
        rows[1][3:3] = [group.group_epoch, group.assignment_epoch]
        widths[3:3] = [15, 25]
    _print(group, rows, widths)


async def _offsets(cluster: ClusterClient, group: DescribedGroup, verbose: bool) -> None:
    if not group.members:
        return
    places: set[TopicPartition] = {
        place for member in group.members for place in groups.task_places(group, member.assignment.active_tasks)
    }
    first = await listed(cluster, sorted(places), topics.EARLIEST)
    last = await listed(cluster, sorted(places), topics.LATEST)
    committed = await group_offsets.committed_positions(cluster, group.group_id)
    rows: list[list[object]] = [["GROUP", "TOPIC", "PARTITION", "OFFSET-LAG"]]
    if verbose:
        rows[0][3:3] = ["CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET"]
    for place in sorted(places):
        position = committed.get(place)
        lag = last[place] - (first[place] if position is None else position.offset)
        shown: list[object] = []
        if verbose:
            at = ["-", "-"] if position is None else [position.offset, _known(position.leader_epoch)]
            shown = [*at, last[place]]
        rows.append([group.group_id, *place, *shown, lag])
    _print(group, rows, (15, 15, 10, 15, 15, 15, 15) if verbose else (15, 15, 10, 0))


def _known(epoch: int) -> object:
    return "-" if epoch < 0 else epoch


# -- Delete -----------------------------------------------------------------------------------------------------------


async def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    states = {
        group.group_id: group.group_state
        for group in await groups.list_groups(cluster)
        if group.group_type.lower() == "streams"
    }
    names = await _names(cluster, options)
    rejected = {name: why for name in names if (why := _why_not(name, states.get(name))) is not None}
    internal: dict[str, list[str]] = {}
    if options.delete_all_internal_topics:
        kept = [name for name in names if name not in rejected]
        internal = {name: found for name in kept if (found := await streams_offsets.internal_topics(cluster, name))}
    deleted, failed = await delete_each(cluster, names, rejected)
    wrong = {}
    for name in deleted:
        if name in internal and (why := await _delete_topics(cluster, internal[name])):
            wrong[name] = why
    print_deletion("streams", deleted, failed, end=".")
    if internal and deleted:
        _print_internal(wrong, [name for name in deleted if name in internal])
    return 0


def _why_not(name: str, state: str | None) -> str | None:
    if state is None:
        return f"java.lang.IllegalArgumentException: Group '{name}' does not exist or is not a streams group."
    if state == "Dead":
        return f"java.lang.IllegalStateException: Streams group '{name}' group state is DEAD."
    if state != "Empty":
        return f"org.apache.kafka.common.errors.GroupNotEmptyException: Streams group '{name}' is not EMPTY."
    return None


async def _delete_topics(cluster: ClusterClient, names: Iterable[str]) -> str | None:
    why = None
    for name in names:
        try:
            await topics.delete_topics(cluster, [name])
        except Failure as failure:
            print(f"Failed to delete internal topic: {name}")
            why = exception(failure)
    return why


def _print_internal(wrong: dict[str, str], names: list[str]) -> None:
    if not wrong:
        shown = "', '".join(names)
        print(f"Deletion of associated internal topics of the streams groups ('{shown}') was successful.")
        return
    print("Deletion of some associated internal topics failed:")
    for name, why in wrong.items():
        print(f"* Internal topics of the streams group '{name}' could not be deleted due to: {why}")


RUN = {
    "list": _list,
    "describe": _describe,
    "delete": _delete,
    "reset-offsets": streams_offsets.reset,
    "delete-offsets": streams_offsets.delete,
}
