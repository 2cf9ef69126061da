"""The commands of `ottla topic`: list, create, describe, copy, delete, diff, add-partitions, delete-records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
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
    Yes,
    connect,
    run,
)
from ottla.cli.errors import FAILED, OK, USAGE, CommandFailed
from ottla.cli.output import Row, confirm, note, print_rows, would
from ottla.cli.progress import ProgressLine
from ottla.cli.shared_options import Internal, Partitions
from ottla.cli.stories import NO_STORY, StoryOptions, show_story
from ottla.cli.tier_view import REMOTE_STORAGE, TIER_COLUMNS, TierView, tier_view
from ottla.client import topics
from ottla.client.admin_listeners import story_of_partition, table_states
from ottla.client.cluster import ClusterClient
from ottla.client.configs import describe_configs, differing
from ottla.client.errors import failure
from ottla.client.failures import Failure, did_you_mean
from ottla.client.troubles import table_troubles
from ottla.protocol.errors import ErrorCode
from ottla.protocol.primitives import uuid_to_str

app = App(
    "topic",
    "Topics: list, create, describe, copy, delete, diff; add partitions, delete records.",
)

LIST_COLUMNS = ("topic", "partitions", "replication_factor", "topic_id")
TABLE_FORMAT, NO_TABLE = "ottla.table.format", "none"
PARTITION_COLUMNS = ("topic", "partition", "leader", "replicas", "isr", "first_offset", "next_offset", "records")
DELETE_COLUMNS = ("topic", "partition", "first_offset", "records")
#: One round of requests to the leaders has this many partitions, so that a command about thousands can show its progress.
PARTITIONS_AT_ONCE = 100
INT64_MAX = 2**63 - 1

main = partial(run, app)

app.elsewhere("copy", "ottla.cli.commands.topic_copy")


@app.named("list")
async def list_topics(
    patterns: Annotated[list[str] | None, Parameter(help="Names or patterns such as 'ord*'; default: all.")] = None,
    /,
    *,
    internal: Internal = False,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> int:
    """List topics. Exit code 1: there is no topic of a name that is not a pattern."""
    async with connect(connection) as cluster:
        cluster.doing = "listing topics"
        found = (await cluster.metadata(None)).topics
        adding = await topics.adding_replicas(cluster, found)
    rows = [
        {
            "topic": topic.name,
            "partitions": len(topic.partitions),
            "replication_factor": topics.replication_factor(topic, adding),
            "topic_id": uuid_to_str(topic.topic_id),
            "internal": topic.is_internal,
        }
        for topic in sorted(found, key=lambda topic: topic.name or "")
        if (internal or not topic.is_internal) and _matches(topic.name or "", patterns)
    ]
    print_rows(rows, LIST_COLUMNS, listing.output)
    unmatched = [each for each in patterns or () if not any(fnmatchcase(topic.name or "", each) for topic in found)]
    for each in unmatched:
        note(f"no topic matches {each!r}" if _is_pattern(each) else f"there is no topic {each!r}")
    return OK if all(map(_is_pattern, unmatched)) else FAILED


@app.command
async def create(
    name: str,
    /,
    *,
    partitions: Annotated[int, Parameter(name=("--partitions", "-p"), help="-1: the broker's num.partitions.")] = -1,
    replication_factor: Annotated[
        int, Parameter(name=("--replication-factor", "-r"), help="-1: the broker's default.replication.factor.")
    ] = -1,
    config: Annotated[list[str] | None, Parameter(name=("--set", "-c"), help="KEY=VALUE.")] = None,
    if_not_exists: Annotated[bool, Parameter(help="Be content with a topic that is there.")] = False,
    dry_run: DryRun = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Create a topic."""
    configs = split_settings(config or [], "retention.ms=3600000")
    async with connect(connection) as cluster:
        try:
            created = await topics.create_topic(
                cluster, name, partitions, replication_factor, configs, validate_only=dry_run
            )
        except Failure as failure:
            if failure.code == ErrorCode.INVALID_CONFIG:
                failure.remedy = _near_setting(configs) or failure.remedy
            if if_not_exists and failure.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                note(f"topic {name} exists already")
                return
            raise
    row = {
        "topic": name,
        "partitions": created.num_partitions,
        "replication_factor": created.replication_factor,
        "topic_id": None if dry_run else uuid_to_str(created.topic_id),
    }
    print_rows([row], LIST_COLUMNS, output)
    if dry_run:
        would(f"create topic {name}")


@app.command
async def describe(
    name: str,
    /,
    *,
    story: StoryOptions = NO_STORY,
    partition: Annotated[int | None, Parameter(help="Only this one.")] = None,
    listing: ListingOptions = LISTING,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Show the partitions of a topic: leader, replicas, in-sync replicas, offsets, and both ends of a log with remote storage.
    Or the story of one: leaders, ISR, truncations."""
    async with connect(connection) as cluster:
        if story.story:
            if partition is None:
                raise CommandFailed("--story is of one partition", "add --partition N", USAGE)
            ask = partial(story_of_partition, topic=name, partition=partition)
            look = partial(topics.places_of, cluster, [f"{name}:{partition}"])
            await show_story(cluster, story, ask, look, listing.output)
            return
        topic = await cluster.topic(name)
        wanted = [part for part in topic.partitions if partition in (None, part.partition_index)]
        led = [part.partition_index for part in wanted if part.leader_id >= 0]
        first = await topics.list_offsets(cluster, name, topics.EARLIEST, led)
        following = await topics.list_offsets(cluster, name, topics.LATEST, led)
        settings = await _settings(cluster, name)
        listeners = story.addresses(cluster)
        troubles = await _table_troubles(listeners, name) if settings.get(TABLE_FORMAT, NO_TABLE) != NO_TABLE else []
        tiers, columns = TierView({}, []), list(PARTITION_COLUMNS)
        if settings.get(REMOTE_STORAGE) == "true":
            tiers, columns = await tier_view(cluster, listeners, name, led), [*PARTITION_COLUMNS, *TIER_COLUMNS]
    rows = [
        {
            "topic": name,
            "partition": part.partition_index,
            "leader": part.leader_id,
            "leader_epoch": part.leader_epoch,
            "replicas": part.replica_nodes,
            "isr": part.isr_nodes,
            "offline_replicas": part.offline_replicas,
            **_offsets(first.get(part.partition_index), following.get(part.partition_index)),
            **tiers.fields.get(part.partition_index, {}),
        }
        for part in sorted(wanted, key=lambda part: part.partition_index)
    ]
    if partition is not None and not rows:
        raise CommandFailed(f"topic {name} has no partition {partition}", f"ottla topic describe {name}", USAGE)
    print_rows(rows, columns, listing.output)
    for line in (*troubles, *tiers.troubles):
        note(line)


async def _settings(cluster: ClusterClient, name: str) -> dict[str, str | None]:
    """Return the settings that say which other columns a topic has; none if this user may not read them."""
    try:
        found = await describe_configs(cluster, "topic", name, [TABLE_FORMAT, REMOTE_STORAGE])
    except Failure:
        return {}
    return {entry.name: entry.value for entry in found}


async def _table_troubles(listeners: Mapping[int, str], name: str) -> list[str]:
    """Return what is wrong with the topic's table, as far as admin listeners are known and respond."""
    states = await table_states(listeners, name)
    return [trouble.text for state in states for trouble in table_troubles(state)]


@app.command
async def delete(
    names: Annotated[list[str], Parameter(help="Names or patterns such as 'test-*'.")],
    /,
    *,
    dry_run: DryRun = False,
    yes: Yes = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Delete topics with all their records. Patterns spare internal topics."""
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            wanted = await _expand(cluster, names)
        if dry_run:
            would(f"delete {', '.join(wanted)}")
            return
        confirm(f"delete {', '.join(wanted)} with all records?", yes)
        async with cluster.limit():
            await topics.delete_topics(cluster, wanted)
    note(f"deleted {', '.join(wanted)}")


@app.command
async def diff(one: str, other: str, /, *, output: Output = "table", connection: ConnectionOptions = CONNECTION) -> int:
    """Show in what two topics differ: partitions, replication factor, settings. Exit code 1: they do."""
    shapes, entries = [], []
    async with connect(connection) as cluster:
        for name in (one, other):
            topic = await cluster.topic(name)
            factor = topics.replication_factor(topic, await topics.adding_replicas(cluster, [topic]))
            shapes.append({"partitions": str(len(topic.partitions)), "replication_factor": str(factor)})
            entries.append(await describe_configs(cluster, "topic", name, None))
    rows: list[Row] = [
        {"name": name, one: value, other: shapes[1][name]}
        for name, value in shapes[0].items()
        if value != shapes[1][name]
    ]
    rows += [{"name": name, one: a, other: b} for name, (a, b) in differing(*entries).items()]
    print_rows(rows, ("name", one, other), output)
    return FAILED if rows else OK


@app.named("add-partitions")
async def add_partitions(
    name: str,
    /,
    *,
    to: Annotated[int, Parameter(help="How many partitions the topic shall have.")],
    dry_run: DryRun = False,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Give a topic more partitions. Keys may then go to other partitions than before."""
    async with connect(connection) as cluster:
        await topics.add_partitions(cluster, name, to, validate_only=dry_run)
    if dry_run:
        would(f"give topic {name} {to} partitions")
    else:
        note(f"topic {name} has {to} partitions")


@app.named("delete-records")
async def delete_records(
    name: str,
    /,
    *,
    before: Annotated[str, Parameter(help="The first offset to keep, or `latest` to keep none.")],
    partition: Partitions = None,
    dry_run: DryRun = False,
    output: Output = "table",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Delete the oldest records of partitions, up to an offset. After Ctrl-C the partitions that are left have theirs."""
    if before != "latest" and not before.isdecimal():
        raise CommandFailed(f"--before {before!r} is neither an offset nor `latest`", None, USAGE)
    if (offset := topics.HIGH_WATERMARK if before == "latest" else int(before)) > INT64_MAX:
        raise CommandFailed(f"--before {before} is larger than any offset", None, USAGE)
    async with connect(connection, limited=False) as cluster:
        async with cluster.limit():
            indexes = partition or await cluster.partitions(name)
            if dry_run:
                print_rows(await _to_delete(cluster, name, indexes, offset), DELETE_COLUMNS, output)
                would(f"delete records of {name}")
                return
        first: dict[int, int] = {}
        clock = cluster.world.clock
        with ProgressLine(f"deleting records of {name}", len(indexes), "partitions", clock.mono_ms()) as progress:
            for begin in range(0, len(indexes), PARTITIONS_AT_ONCE):
                part = indexes[begin : begin + PARTITIONS_AT_ONCE]
                async with cluster.limit():
                    first |= await topics.delete_records(cluster, name, dict.fromkeys(part, offset))
                progress.update(len(first), clock.mono_ms())
    rows = [{"topic": name, "partition": index, "first_offset": first[index]} for index in sorted(first)]
    print_rows(rows, DELETE_COLUMNS[:-1], output)


async def _to_delete(cluster: ClusterClient, name: str, indexes: Sequence[int], offset: int) -> list[Row]:
    """Return the first offset that each partition would have, and how many records it would lose."""
    first = await topics.list_offsets(cluster, name, topics.EARLIEST, indexes)
    ends = await topics.list_offsets(cluster, name, topics.LATEST, indexes)
    rows: list[Row] = []
    for index, end in ends.items():
        if offset > end:
            raise failure(f"partition {name}-{index}", ErrorCode.OFFSET_OUT_OF_RANGE)
        target = max(first[index], end if offset == topics.HIGH_WATERMARK else offset)
        rows.append({"topic": name, "partition": index, "first_offset": target, "records": target - first[index]})
    return rows


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


async def _expand(cluster: ClusterClient, names: Sequence[str]) -> list[str]:
    """Return the names. A pattern is replaced by the names of the topics that match it."""
    if not any(map(_is_pattern, names)):
        return list(names)
    found = [topic.name or "" for topic in (await cluster.metadata(None)).topics if not topic.is_internal]
    wanted: list[str] = []
    for name in names:
        matching = sorted(each for each in found if fnmatchcase(each, name)) if _is_pattern(name) else [name]
        if not matching:
            raise CommandFailed(f"no topic matches {name!r}", "`ottla topic list` shows what there is")
        wanted += matching
    return list(dict.fromkeys(wanted))


def _is_pattern(name: str) -> bool:
    return any(char in name for char in "*?[")


def _offsets(first: int | None, following: int | None) -> dict[str, int | None]:
    """Return the fields of a partition's offsets; they are null for a partition without a leader."""
    records = None if first is None or following is None else following - first
    return {"first_offset": first, "next_offset": following, "records": records}


def _near_setting(settings: Mapping[str, str]) -> str | None:
    """Return the name that was probably meant by the first setting that topics do not have."""
    from ottla.server.config.resource_configs import (
        TOPIC_CONFIGS,  # imported late: the tables are slow to import, and only a mistake needs them
    )

    unknown = [name for name in settings if name not in TOPIC_CONFIGS]
    return did_you_mean(unknown[0], TOPIC_CONFIGS) if unknown else None


def split_settings(texts: Iterable[str], example: str) -> dict[str, str]:
    """Split each KEY=VALUE.

    Raises:
        CommandFailed: a text has another form, or a key has two values.
    """
    found: dict[str, str] = {}
    for key, value in (split_setting(text, example) for text in texts):
        if key in found:
            raise CommandFailed(f"{key} is given twice", f"{key}={value} or {key}={found[key]}", USAGE)
        found[key] = value
    return found


def split_setting(text: str, example: str) -> tuple[str, str]:
    """Split KEY=VALUE.

    Raises:
        CommandFailed: the text has another form; the remedy is the example.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CommandFailed(f"{text!r} is not KEY=VALUE", f"for example {example}", USAGE)
    return key.strip(), value
