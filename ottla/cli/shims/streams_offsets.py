"""The changes of offsets by kafka-streams-groups, --reset-offsets and --delete-offsets."""

from __future__ import annotations

import argparse

from ottla.cli.shims.exceptions import execution_exception
from ottla.cli.shims.group_commands import described, group_names
from ottla.cli.shims.offset_resets import SCENARIOS, Offsets, delete_places, exported, named_places, new_offsets
from ottla.cli.shims.tool import Unusable, given, table
from ottla.client import group_offsets, groups, topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode

#: The options as Kafka's tool prints them.
SCENARIO_TEXT = ", ".join(f"[{name}]" for name in SCENARIOS)


async def internal_topics(cluster: ClusterClient, name: str) -> list[str]:
    """Return the topics that are deleted with a group. Print the internal topics of its topology that are not."""
    group = await described(cluster, name, groups.describe_streams_group)
    own, others = groups.internal_topics(group)
    for topic in others:
        print(
            f"\nError: The internal topic '{topic}' is not inferred as internal and thus will not be deleted with the"
            f" group '{name}'."
        )
    return own


async def _input_places(cluster: ClusterClient, name: str) -> list[TopicPartition]:
    group = await described(cluster, name, groups.describe_streams_group)
    sources = groups.input_topics(group)
    return sorted(place for place in await group_offsets.committed_offsets(cluster, name) if place[0] in sources)


async def reset(cluster: ClusterClient, options: argparse.Namespace) -> int:
    plan: dict[str, Offsets] = {}
    for name in await group_names(cluster, options, ["streams"]):
        state = await _state(cluster, name)
        if state not in ("Empty", "Dead"):
            print(
                f"\nError: Assignments can only be reset if the group '{name}' is inactive, but the current state is"
                f" {state}."
            )
            plan[name] = {}
            continue
        plan[name] = await _new_offsets(cluster, name, options)
        if options.execute and plan[name]:
            await group_offsets.commit_offsets(cluster, name, plan[name])
        if options.execute:
            await _delete_internal(cluster, name, options)
    if options.export:
        print(exported(plan, with_group=len(options.group) != 1))
        return 0
    rows: list[tuple[object, ...]] = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")]
    rows += [(name, *place, offset) for name, offsets in plan.items() for place, offset in sorted(offsets.items())]
    print("\n" + "\n".join(table(rows, (30, 30, 10, 15))) if plan else "")
    return 0


async def _state(cluster: ClusterClient, name: str) -> str:
    """Return the state of a group. Kafka's tool resets a group that does not exist as one without members."""
    try:
        return (await groups.describe_streams_group(cluster, name)).group_state
    except Failure as failure:
        if failure.code == ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        raise


async def _places(cluster: ClusterClient, name: str, options: argparse.Namespace) -> list[TopicPartition]:
    if options.all_input_topics:
        return await _input_places(cluster, name)
    if options.input_topic:
        places = await named_places(cluster, options.input_topic)
        committed = await group_offsets.committed_offsets(cluster, name)
        if all(place in committed for place in places):
            return places
        print(f"\nError: One or more topics are not part of the group '{name}'.")
        return []
    if not options.from_file:
        raise Unusable("One of the reset scopes should be defined: --all-topics, --topic.")
    return []


async def _new_offsets(cluster: ClusterClient, name: str, options: argparse.Namespace) -> Offsets:
    places = await _places(cluster, name, options)
    if not any(given(options, scenario) for scenario in SCENARIOS):
        raise Unusable(f"Option '[reset-offsets]' requires one of the following scenarios: [{SCENARIO_TEXT}]")
    return await new_offsets(cluster, name, options, places)


async def _delete_internal(cluster: ClusterClient, name: str, options: argparse.Namespace) -> None:
    names = options.delete_internal_topic
    if options.delete_all_internal_topics:
        names = await internal_topics(cluster, name)
    if not names:
        return
    try:
        await topics.delete_topics(cluster, names)
    except Failure as failure:
        why = f"due to {execution_exception(failure).partition(': ')[2]}"
        if failure.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = "because the topics do not exist."
        print(f"\nError: Deleting internal topics for group '{name}' failed {why}")


async def delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    (name,) = options.group
    if options.all_input_topics:
        return await delete_places(cluster, name, await _input_places(cluster, name))
    known = set(await cluster.topic_names())
    missing = [text for text in options.input_topic if ":" not in text and text not in known]
    places = await named_places(cluster, [text for text in options.input_topic if text not in missing])
    return await delete_places(cluster, name, places, missing)
