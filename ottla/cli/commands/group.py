"""The commands of `ottla group`: list, describe, lag, reset, delete."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from ottla.cli.app import App, Parameter
from ottla.cli.application import (
    CONNECTION,
    LISTING,
    ConnectionOptions,
    DryRun,
    ListingOptions,
    Output,
    connect,
    repeat,
    run,
)
from ottla.cli.lag_history import LagHistory
from ottla.cli.output import note, print_rows, replace_file, would
from ottla.cli.stories import NO_STORY, StoryOptions, show_story
from ottla.client import group_offsets, groups, topics
from ottla.client.admin_listeners import story_of_group
from ottla.client.errors import failure
from ottla.client.failures import counted
from ottla.client.group_offsets import group_lag, reset_targets
from ottla.client.groups import GroupDescription
from ottla.client.partitions import TopicPartition
from ottla.client.topics import places_of
from ottla.protocol.errors import ErrorCode

app = App("group", "Consumer groups: list, describe, lag, reset, delete.")

LIST_COLUMNS = ("group", "type", "state", "protocol")
MEMBER_COLUMNS = ("group", "state", "topic", "partition", "committed", "end", "lag", "member", "client_id", "host")
LAG_COLUMNS = ("group", "topic", "partition", "committed", "end", "lag", "consumed_per_s")
RESET_COLUMNS = ("group", "topic", "partition", "committed", "new", "records_skipped")

main = partial(run, app)


@app.named("list")
async def list_groups(*, listing: ListingOptions = LISTING, connection: ConnectionOptions = CONNECTION) -> None:
    """List groups of all kinds."""
    async with connect(connection) as cluster:
        found = await groups.list_groups(cluster)
    rows = [
        {
            "group": group.group_id,
            "type": group.group_type or "classic",
            "state": group.group_state,
            "protocol": group.protocol_type,
        }
        for group in found
    ]
    print_rows(rows, LIST_COLUMNS, listing.output)


@app.command
async def describe(
    group: str,
    /,
    *,
    story: StoryOptions = NO_STORY,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show a group: its members, what they are assigned, and how far behind each partition is. Or its story: why it rebalanced."""
    async with connect(connection) as cluster:
        if story.story:
            ask, look = partial(story_of_group, group=group), partial(groups.kind_of, cluster, group)
            await show_story(cluster, story, ask, look, listing.output)
            return
        description = await groups.describe_group(cluster, group)
        committed = await group_offsets.committed_offsets(cluster, group)
        assigned = {place for member in description.members for place in member.assigned}
        ends = await topics.end_offsets(cluster, committed.keys() | assigned)
    rows = _member_rows(description, committed, ends)
    if listing.output == "table":
        members = counted(len(description.members), "member")
        note(f"group {group}: {description.state}, {description.type}, {members}")
    print_rows(rows, MEMBER_COLUMNS, listing.output)


@app.command
def lag(
    group: str,
    /,
    *,
    plot: Annotated[
        str | None, Parameter(help="Draw it as SVG into this file; with --watch the lag over time, at each look.")
    ] = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show how far behind a group is: records that are not consumed yet, of each partition. Groups of all kinds have a lag."""
    history = LagHistory()

    async def look() -> None:
        async with connect(connection) as cluster:
            rows = await group_lag(cluster, group)
            history.add(cluster.world.clock.wall_ms(), rows)
        if listing.output == "table":
            total = sum(row.lag or 0 for row in rows)
            note(f"group {group}: {counted(total, 'record')} behind in {counted(len(rows), 'partition')}")
        print_rows(
            [
                {
                    "group": group,
                    **row._asdict(),
                    "consumed_per_s": history.consumed_per_s((row.topic, row.partition)),
                }
                for row in rows
            ],
            LAG_COLUMNS if listing.watch else LAG_COLUMNS[:-1],
            listing.output,
        )
        if plot is not None:
            replace_file(plot, history.svg(group).encode())

    repeat(look, listing)


@app.command
async def reset(
    group: str,
    /,
    *,
    topic: Annotated[list[str], Parameter(name=("--topic", "-t"), help="TOPIC or TOPIC:PARTITION.")],
    to: Annotated[
        str,
        Parameter(help="earliest, latest, an offset, +N or -N from the committed one, or a time."),
    ],
    dry_run: DryRun = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Set the committed offsets of a group that has no members (a group of this name need not exist)."""
    async with connect(connection) as cluster:
        places = await places_of(cluster, topic)
        committed = await group_offsets.committed_offsets(cluster, group)
        new = await reset_targets(cluster, places, to, committed)
        if not dry_run:
            await group_offsets.commit_offsets(cluster, group, new)
    rows = [
        {
            "group": group,
            "topic": name,
            "partition": index,
            "committed": committed.get((name, index)),
            "new": offset,
            "records_skipped": offset - committed[name, index] if (name, index) in committed else None,
        }
        for (name, index), offset in sorted(new.items())
    ]
    print_rows(rows, RESET_COLUMNS, output)
    if dry_run:
        note("nothing was changed (--dry-run)")


@app.command
async def delete(
    names: list[str],
    /,
    *,
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Delete groups that have no members, with their committed offsets."""
    async with connect(connection) as cluster:
        if dry_run:
            for name in names:
                found = await groups.describe_group(cluster, name)
                if found.members:
                    raise failure(f"group {name}", ErrorCode.NON_EMPTY_GROUP)
            would(f"delete {', '.join(names)}")
            return
        await groups.delete_groups(cluster, names)
    note(f"deleted {', '.join(names)}")


def _member_rows(
    description: GroupDescription, committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> list[dict[str, object]]:
    """Return a row for each partition that is assigned or has an offset, and one for each member without partitions."""
    owners = {place: member for member in description.members for place in member.assigned}
    rows: list[dict[str, object]] = []
    for place in sorted(committed.keys() | owners.keys()):
        member = owners.get(place)
        offset, end = committed.get(place), ends.get(place)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "committed": offset,
                "end": end,
                "lag": None if offset is None or end is None else max(0, end - offset),
                "member": member.member_id if member else None,
                "client_id": member.client_id if member else None,
                "host": member.host if member else None,
            }
        )
    rows += [
        {"member": member.member_id, "client_id": member.client_id, "host": member.host}
        for member in description.members
        if not member.assigned
    ]
    return [{"group": description.group, "state": description.state, **row} for row in rows]
