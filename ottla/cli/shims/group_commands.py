"""The common parts of the tools of consumer, share and streams groups: names, states, deletion, and messages about failures."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import NoReturn, TypeVar

from ottla.cli.shims.exceptions import exception, reason, rejected
from ottla.cli.shims.tool import ToolParser, Unusable, int64, table, with_cluster
from ottla.client import groups
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.protocol.errors import ErrorCode

T = TypeVar("T")
SCOPES = "[all-groups], [group]"


def run_command(
    parser: ToolParser, options: argparse.Namespace, work: Callable[[ClusterClient], Awaitable[int]], kind: str
) -> int:
    """Run the action of a tool for groups of this kind, and print why it failed.

    As in Kafka's tool, the option --timeout is read only now.
    """
    try:
        timeout_ms = int64(options.timeout)
    except ValueError:
        print(f"\nError: Executing {kind} group command failed due to {wrong_number('timeout', options.timeout)}")
        return 0
    try:
        return with_cluster(options, work, timeout_ms)
    except Unusable as wrong:
        parser.usage_error(str(wrong))
    except Failure as failure:
        said = exception(failure) if failure.code == ErrorCode.GROUP_ID_NOT_FOUND else reason(failure)
        print(f"\nError: Executing {kind} group command failed due to {said}")
        # Kafka's tools exit with 0 after a failure too, and scripts that check the exit code expect that.
        return 0 if failure.code is not None else 1


def wrong_number(option: str, text: str) -> str:
    return f"Cannot parse argument '{text}' of option {option}"


def chosen(text: str | None, known: Sequence[str], wrong: str) -> list[str]:
    """Return the known names of a list with commas, in upper or lower case. `wrong` is the message for unknown names."""
    names = {name.lower(): name for name in known}
    words = [word.strip().lower() for word in text.split(",")] if text else []
    if any(word not in names for word in words):
        raise Unusable(wrong.format(text, ", ".join(known)))
    return [names[word] for word in words]


async def group_names(cluster: ClusterClient, options: argparse.Namespace, types: Collection[str]) -> list[str]:
    """Return the groups that --group and --all-groups name. `types` are in lower case."""
    if not options.all_groups:
        names: list[str] = options.group
        return names
    return [group.group_id for group in await groups.list_groups(cluster) if group.group_type.lower() in types]


async def print_groups(cluster: ClusterClient, kind: str, state: str | None, states: Sequence[str]) -> None:
    """Print the names of the groups of a kind (in lower case).

    With `state`, a list of `states`, print those in one of these states.
    """
    wanted = chosen(state, states, "Invalid state list '{}'. Valid states are: {}")
    found = [group for group in await groups.list_groups(cluster) if group.group_type.lower() == kind]
    if state is None:
        for group in found:
            print(group.group_id)
        return
    rows = [("GROUP", "STATE")]
    rows += [(group.group_id, group.group_state) for group in found if not wanted or group.group_state in wanted]
    print("\n".join(table(rows, (15, 0))))


def not_found(name: str) -> NoReturn:
    raise rejected(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {name} not found.")


async def described(cluster: ClusterClient, name: str, describe: Callable[[ClusterClient, str], Awaitable[T]]) -> T:
    """Return the description of a group. If it does not exist, fail with Kafka's message."""
    try:
        return await describe(cluster, name)
    except Failure as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND and failure.message == ErrorCode.GROUP_ID_NOT_FOUND.message:
            not_found(name)  # the broker has sent no message of its own, such as "Group g is not a share group."
        raise


async def delete_each(
    cluster: ClusterClient, names: Iterable[str], rejected: Mapping[str, str] | None = None
) -> tuple[list[str], dict[str, str]]:
    """Delete the groups.

    `rejected` are those that are not tried, with the reason. Return those that were deleted, and the errors of the others.
    """
    deleted: list[str] = []
    failed = dict(rejected or {})
    for name in names:
        if name in failed:
            continue
        try:
            await groups.delete_groups(cluster, [name])
            deleted.append(name)
        except Failure as failure:
            failed[name] = exception(failure)
    return deleted, failed


def print_deletion(
    kind: str, deleted: Sequence[str], failed: Mapping[str, str], separator: str = "', '", end: str = ""
) -> None:
    shown = f"'{separator.join(deleted)}'"
    if not failed:
        print(f"Deletion of requested {kind} groups ({shown}) was successful.")
        return
    print(f"\nError: Deletion of some {kind} groups failed:")
    for name, why in failed.items():
        print(f"* Group '{name}' could not be deleted due to: {why}")
    if deleted:
        print(f"\nThese {kind} groups were deleted successfully: {shown}{end}")
