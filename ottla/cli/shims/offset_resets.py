"""The changes of offsets by kafka-consumer-groups, --reset-offsets and --delete-offsets; the tool of share groups uses parts of
it.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable

from ottla.cli.shims.exceptions import exception_name, message, rejected
from ottla.cli.shims.group_commands import wrong_number
from ottla.cli.shims.java_times import datetime_ms, duration_ms
from ottla.cli.shims.tool import Unusable, given, int32, int64, java_split, table
from ottla.client import group_offsets, groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode

SCENARIOS = (
    "to-offset", "shift-by", "from-file", "to-datetime", "by-duration", "to-latest", "to-current", "to-earliest",
)  # fmt: skip
NO_PARTITION = -1
Offsets = dict[TopicPartition, int]


async def reset(cluster: ClusterClient, options: argparse.Namespace, names: Iterable[str]) -> int:
    if not options.from_file and not (options.topic or options.all_topics):
        raise Unusable("One of the reset scopes should be defined: --all-topics, --topic.")
    if not any(given(options, scenario) for scenario in SCENARIOS):
        shown = ", ".join(f"[{scenario}]" for scenario in SCENARIOS)
        raise Unusable(f"Option '[reset-offsets]' requires one of the following scenarios: [{shown}]")
    plan: dict[str, Offsets] = {}
    for name in names:
        if await _is_active(cluster, name):
            print(
                f"\nError: Assignments can only be reset if the group '{name}' is inactive, but the current state is Stable."
            )
            continue
        plan[name] = await new_offsets(cluster, name, options, await _places(cluster, name, options))
        if options.execute:
            await group_offsets.commit_offsets(cluster, name, plan[name])
    if options.export:
        print(exported(plan, with_group=len(plan) > 1))
        return 0
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    rows += [(name, *place, offset) for name, offsets in plan.items() for place, offset in sorted(offsets.items())]
    print("\n" + "\n".join(table(rows, (15, 15, 10, 15))))
    return 0


async def _is_active(cluster: ClusterClient, name: str) -> bool:
    try:
        return (await groups.describe_group(cluster, name)).state.lower() not in ("empty", "dead")
    except Failure as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return False
        raise


def exported(plan: dict[str, Offsets], *, with_group: bool) -> str:
    """Return lines topic,partition,offset. If there are several groups, each line begins with the group."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, offsets in plan.items():
        for place, offset in sorted(offsets.items()):
            writer.writerow([*([name] if with_group else []), *place, offset])
    return text.getvalue()


async def _places(cluster: ClusterClient, group: str, options: argparse.Namespace) -> list[TopicPartition]:
    """Return the partitions that --topic NAME, --topic NAME:0,1 and --all-topics mean."""
    if options.from_file:
        return []
    if options.all_topics:
        return sorted(await group_offsets.committed_offsets(cluster, group))
    return await named_places(cluster, options.topic)


async def named_places(cluster: ClusterClient, texts: Iterable[str]) -> list[TopicPartition]:
    found: list[TopicPartition] = []
    known = {topic.name: topic for topic in (await cluster.metadata(None)).topics}
    for text in texts:
        name, indexes = name_and_indexes(text)
        if indexes is not None:
            asked = [(name, index) for index in indexes]
            if name not in known:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                why = f"java.util.concurrent.ExecutionException: {exception_name(unknown)}: {message(unknown)}"
                raise rejected(unknown, why)
            there = {part.partition_index for part in known[name].partitions}
            if absent := [f"{name}-{index}" for _, index in asked if index not in there]:
                code, quoted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ",".join(absent)
                raise rejected(code, f'The partitions "{quoted}" do not exist')
            found += asked
        elif name not in known:
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise rejected(unknown, message(unknown))
        else:
            found += [(name, part.partition_index) for part in known[name].partitions]
    return sorted(found)


def name_and_indexes(text: str) -> tuple[str, list[int] | None]:
    """Return the topic and the partitions of "NAME:0,1", None for "NAME".

    Raises:
        Unusable: it has another form.
    """
    if ":" not in text:
        return text, None
    parts = java_split(text, ":")
    if len(parts) != 2:
        raise Unusable(f"Invalid topic arg '{text}', expected topic name and partitions")
    return parts[0], [_partition(index, text) for index in java_split(parts[1], ",")]


def _partition(text: str, argument: str) -> int:
    try:
        return int32(text)
    except ValueError:
        raise Unusable(f"Invalid partition '{text}' specified in topic arg '{argument}''") from None


async def new_offsets(
    cluster: ClusterClient, group: str, options: argparse.Namespace, places: list[TopicPartition]
) -> Offsets:
    """Return the offsets of the partitions by the scenario in the options. With --from-file the file names the partitions."""
    if options.from_file:
        offsets = _from_file(options.from_file, group)
        return await _within(cluster, offsets)
    if options.to_earliest:
        return await listed(cluster, places, topics.EARLIEST)
    if options.to_latest:
        return await listed(cluster, places, topics.LATEST)
    if options.to_offset is not None:
        return await _within(cluster, dict.fromkeys(places, _number("to-offset", options.to_offset)))
    if options.to_datetime is not None:
        return await since(cluster, places, datetime_ms(options.to_datetime))
    if options.by_duration is not None:
        now_ms = cluster.world.clock.wall_ms()
        return await since(cluster, places, now_ms - duration_ms(options.by_duration))
    committed = await group_offsets.committed_offsets(cluster, group)
    if options.to_current:
        missing = await listed(cluster, [place for place in places if place not in committed], topics.LATEST)
        return {place: committed.get(place, missing.get(place, 0)) for place in places}
    shift = _number("shift-by", options.shift_by)
    for place in places:
        if place not in committed:
            what = f"{place[0]}-{place[1]}"
            raise Unusable(f"Cannot shift offset for partition {what} since there is no current committed offset")
    return await _within(cluster, {place: committed[place] + shift for place in places})


def _number(option: str, text: str) -> int:
    try:
        return int64(text)
    except ValueError:
        raise rejected(ErrorCode.INVALID_REQUEST, wrong_number(option, text)) from None


async def listed(cluster: ClusterClient, places: Iterable[TopicPartition], timestamp: int) -> Offsets:
    found: Offsets = {}
    by_topic: dict[str, list[int]] = {}
    for name, index in places:
        by_topic.setdefault(name, []).append(index)
    for name, indexes in by_topic.items():
        listed = await topics.list_offsets(cluster, name, timestamp, indexes)
        found.update(((name, index), offset) for index, offset in listed.items())
    return found


async def _within(cluster: ClusterClient, wanted: Offsets) -> Offsets:
    """Return the offsets. Those outside of the log are moved to its first or last offset."""
    first = await listed(cluster, wanted, topics.EARLIEST)
    last = await listed(cluster, wanted, topics.LATEST)
    return {place: max(first[place], min(offset, last[place])) for place, offset in wanted.items()}


async def since(cluster: ClusterClient, places: list[TopicPartition], timestamp_ms: int) -> Offsets:
    found = await listed(cluster, places, timestamp_ms)
    without = [place for place, offset in found.items() if offset < 0]
    for name, index in without:
        print(f"\nWarn: Partition {index} from topic {name} is empty. Falling back to latest known offset.")
    return found | await listed(cluster, without, topics.LATEST)


def _from_file(path: str, group: str) -> Offsets:
    """Return the offsets of a group in a file that --export wrote."""
    found: Offsets = {}
    try:
        with open(path, newline="") as file:
            rows = [row for row in csv.reader(file) if row]
        for row in rows:
            # Missing numbers of a short line are 0, and a malformed line ends the plan, as with Kafka's reader of CSV.
            name, topic, index, offset = row if len(row) == 4 else (group, *row, "0", "0")[:4]
            if name == group:
                found[topic, int32(index)] = int64(offset)
    except OSError:
        raise rejected(ErrorCode.INVALID_REQUEST, f"java.io.IOException: Unable to read file {path}") from None
    except ValueError:
        found = {}
    if not found:
        print(f"\nError: No reset plan for group {group} found")
    return found


async def delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Delete the offsets of topics or partitions. The coordinator reports missing partitions, the tool itself missing topics."""
    known = {topic.name: topic for topic in (await cluster.metadata(None)).topics}
    places: list[TopicPartition] = []
    missing: list[str] = []
    for text in options.topic:
        name, indexes = name_and_indexes(text)
        if indexes is not None:
            places += [(name, index) for index in indexes]
        elif name in known:
            places += [(name, part.partition_index) for part in known[name].partitions]
        else:
            missing.append(name)
    return await delete_places(cluster, options.group[0], sorted(places), missing)


async def delete_places(
    cluster: ClusterClient, group: str, places: list[TopicPartition], missing: Iterable[str] = ()
) -> int:
    """Delete the offsets, and print the result of each. `missing` are topics that do not exist."""
    try:
        results = await group_offsets.delete_offsets(cluster, group, places)
    except Failure as failure:
        code = ErrorCode(failure.code or ErrorCode.UNKNOWN_SERVER_ERROR)
        print(f"\nError: {_OF_GROUP.get(code, message(code))}")
        results = dict.fromkeys(places, int(code))
    else:
        if any(results.values()):
            print("\nError: Encountered some partition-level error, see the follow-up details.")
        else:
            print(f"Request succeeded for deleting offsets from group {group}.")
    results |= {(name, NO_PARTITION): int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in missing}
    rows: list[tuple[object, ...]] = [("TOPIC", "PARTITION", "STATUS")]
    for (name, index), number in sorted(results.items()):
        said = f"Error: {exception_name(number)}: {message(number)}" if number else "Successful"
        rows.append((name, "-" if index == NO_PARTITION else index, said))
    print("\n" + "\n".join(table(rows, (15, 10, 15))))
    return 0


_OF_GROUP = {ErrorCode.NON_EMPTY_GROUP: "Deleting offsets of a consumer group is forbidden if the group is not empty."}


def assignment_text(places: Iterable[TopicPartition]) -> str:
    by_topic: dict[str, list[int]] = {}
    for name, index in sorted(places):
        by_topic.setdefault(name, []).append(index)
    return ";".join(f"{name}:{','.join(map(str, indexes))}" for name, indexes in by_topic.items()) or "-"
