"""kafka-topics: --list, --describe, --create, --alter, --delete."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import ToolParser, int32, java_split, uuid_bytes, with_cluster
from ottla.cli.shims.topic_filter import included
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.configs import describe_configs
from ottla.client.errors import check
from ottla.client.failures import Failure
from ottla.client.topics import ongoing_reassignments
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.replica_sets import missing_replicas, original_replicas

ACTIONS = ("list", "describe", "create", "alter", "delete")
ONE_ACTION = "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
FILTERS = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions")
WITHOUT_EFFECT = {
    "partition-size-limit-per-response": "Topics are described by Metadata, whose response has all partitions."
}
#: The actions that allow an option.
ALLOWED = {
    "config": ("create", "alter"),  # --alter with this option has its own error
    "partitions": ("create", "alter"),
    "replication-factor": ("create",),
    "replica-assignment": ("create", "alter"),
    **dict.fromkeys((*FILTERS, "topics-with-overrides"), ("describe",)),
    "if-exists": ("alter", "delete", "describe"),
    "if-not-exists": ("create",),
    "exclude-internal": ("list", "describe"),
}
NO_DELETE = "delete-config option is no longer supported and deprecated since version 4.0. The config will be fully removed in future releases."
NO_CONFIG = (
    'Option combination "[[bootstrap-server], [config]]" can\'t be used with option "[alter]" (To alter topic configurations, the '
    "kafka-configs tool can be used.)"
)
FACTOR_MAX = 2**15 - 1
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
#: The sources of DescribeConfigs that are shown: the topic, the broker, all brokers, the properties file.
SHOWN_SOURCES = (1, 2, 3, 4)


def parser() -> ToolParser:
    made = ToolParser("kafka-topics", "Create, delete, describe, or change a topic.")
    made.missing_bootstrap = "--bootstrap-server must be specified"
    made.add_bootstrap()
    made.flags(*ACTIONS, "if-not-exists", "if-exists", "exclude-internal", "topics-with-overrides", *FILTERS)
    made.texts("topic", "topic-id", "replica-assignment", "partitions", "replication-factor")
    made.lists("config", "delete-config")
    made.numbers("partition-size-limit-per-response")
    return made


def check_options(made: ToolParser, options: argparse.Namespace) -> str:
    """Return the action. End the tool if options do not go together."""
    if options.delete_config:
        print(NO_DELETE, file=sys.stderr)
    asked = [name for name in ACTIONS if getattr(options, name)]
    if len(asked) != 1:
        made.usage_error(ONE_ACTION)
    action = asked[0]
    if action in ("create", "delete") or (action == "alter" and not options.topic_id):
        made.require(options, "topic")
    if action == "alter":
        made.require(options, "partitions")
        if options.config:
            made.usage_error(NO_CONFIG)
    for option, allowed in ALLOWED.items():
        if action not in allowed:
            made.forbid(options, option, action)
    if action == "create":
        made.forbid(options, "replica-assignment", "partitions", "replication-factor")
    return action


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.parse(arguments)
    action = check_options(made, options)
    try:
        for name in ("partitions", "replication_factor"):
            setattr(options, name, _number(name, getattr(options, name)))
        return with_cluster(options, lambda cluster: RUN[action](cluster, options))
    except Failure as failure:
        print(f"Error while executing topic command : {reason(failure)}")
        return 1


def _number(name: str, text: str | None) -> int | None:
    try:
        return None if text is None else int32(text)
    except ValueError:
        raise CommandFailed(f"Cannot parse argument '{text}' of option {name.replace('_', '-')}") from None


async def _matching(cluster: ClusterClient, options: argparse.Namespace) -> list[MetadataResponseTopic]:
    """Return the topics that --topic (a regular expression) matches.

    Raise CommandFailed if there are none, unless --if-exists is given.
    """
    found = sorted((await cluster.metadata(None)).topics, key=lambda topic: str(topic.name))
    # In Kafka's tool the id of zeros, which no topic has, means that the option is not given.
    topic_id = b"" if options.topic_id is None else _topic_id(options.topic_id)
    wanted: str | None
    if any(topic_id):
        wanted = options.topic_id
        found = [topic for topic in found if topic.topic_id == topic_id]
    else:
        wanted = options.topic
        if wanted is not None:
            pattern = included(wanted)
            found = [topic for topic in found if pattern.fullmatch(topic.name or "")]
    if options.exclude_internal:
        found = [topic for topic in found if topic.name not in INTERNAL]
    if wanted is not None and not found and not options.if_exists:
        kind = "TopicId" if any(topic_id) else "Topic"
        raise CommandFailed(f"{kind} '{wanted}' does not exist as expected")
    return found


def _topic_id(text: str) -> bytes:
    try:
        return uuid_bytes(text)
    except ValueError as wrong:
        raise CommandFailed(str(wrong)) from None


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    options.if_exists = True
    for topic in await _matching(cluster, options):
        print(topic.name)
    return 0


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    topics = await _matching(cluster, options)
    moves = await ongoing_reassignments(cluster) if topics else {}
    for topic in topics:
        name = topic.name or ""
        await _describe_one(cluster, topic, options, {index: row for (of, index), row in moves.items() if of == name})
    return 0


async def _describe_one(
    cluster: ClusterClient,
    topic: MetadataResponseTopic,
    options: argparse.Namespace,
    moves: Mapping[int, OngoingPartitionReassignment],
) -> None:
    """Print a topic, with the moves of its partitions."""
    configs = await describe_configs(cluster, "topic", topic.name or "", None)
    overrides = sorted(f"{entry.name}={entry.value}" for entry in configs if entry.config_source in SHOWN_SOURCES)
    if options.topics_with_overrides and not overrides:
        return
    min_isr = next((int(entry.value or 1) for entry in configs if entry.name == "min.insync.replicas"), 1)
    partitions = sorted(topic.partitions, key=lambda part: part.partition_index)
    filtered = any(getattr(options, name.replace("-", "_")) for name in FILTERS)
    if not filtered:
        first = partitions[:1]
        copies = sum(len(original_replicas(part.replica_nodes, _adding(moves, part))) for part in first)
        print(
            f"Topic: {topic.name}\tTopicId: {uuid_to_str(topic.topic_id)}\tPartitionCount: {len(partitions)}"
            f"\tReplicationFactor: {copies}\tConfigs: {','.join(overrides)}"
        )
    if options.topics_with_overrides:
        return
    for part in partitions:
        if filtered and not _passes(part, _adding(moves, part), min_isr, options):
            continue
        leader = part.leader_id if part.leader_id >= 0 else "none"
        moving = ""
        if (move := moves.get(part.partition_index)) is not None:
            moving = (
                f"\tAdding Replicas: {_ids(move.adding_replicas)}\tRemoving Replicas: {_ids(move.removing_replicas)}"
            )
        print(
            f"\tTopic: {topic.name}\tPartition: {part.partition_index}\tLeader: {leader}"
            f"\tReplicas: {_ids(part.replica_nodes)}\tIsr: {_ids(part.isr_nodes)}{moving}\tElr: \tLastKnownElr: "
        )


def _adding(moves: Mapping[int, OngoingPartitionReassignment], part: MetadataResponsePartition) -> list[int]:
    move = moves.get(part.partition_index)
    return [] if move is None else move.adding_replicas


def _passes(part: MetadataResponsePartition, adding: list[int], min_isr: int, options: argparse.Namespace) -> bool:
    in_sync = len(part.isr_nodes)
    return bool(
        (options.under_replicated_partitions and missing_replicas(part.replica_nodes, adding, part.isr_nodes))
        or (options.unavailable_partitions and part.leader_id < 0)
        or (options.under_min_isr_partitions and (part.leader_id < 0 or in_sync < min_isr))
        or (options.at_min_isr_partitions and in_sync == min_isr)
    )


def _ids(nodes: list[int]) -> str:
    return ",".join(map(str, nodes))


async def _create(cluster: ClusterClient, options: argparse.Namespace) -> int:
    name = options.topic
    if "." in name or "_" in name:
        print(COLLISION)
    configs = []
    for text in options.config:
        key, equals, value = text.partition("=")
        if not (equals and value):
            raise CommandFailed(
                'requirement failed: Invalid topic config: all configs to be added must be in the format "key=val".'
            )
        configs.append(CreatableTopicConfig(name=key.strip(), value=value.strip()))
    if options.partitions is not None and options.partitions < 1:
        raise CommandFailed("The partitions must be greater than 0")
    if options.replication_factor is not None and not 1 <= options.replication_factor <= FACTOR_MAX:
        raise CommandFailed(f"The replication factor must be between 1 and {FACTOR_MAX} inclusive")
    topic = CreatableTopic(
        name=name,
        num_partitions=topics.BROKER_DEFAULT if options.partitions is None else options.partitions,
        replication_factor=topics.BROKER_DEFAULT if options.replication_factor is None else options.replication_factor,
        configs=configs,
    )
    if options.replica_assignment:
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
            for index, replicas in enumerate(_assignment(options.replica_assignment))
        ]
    cluster.doing = "createTopics"
    response = await cluster.request(CreateTopicsRequest(topics=[topic], timeout_ms=cluster.timeout_ms))
    result = response.topics[0]
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return 0
    check(f"topic {name}", result.error_code, result.error_message)
    print(f"Created topic {name}.")
    return 0


def _assignment(text: str) -> list[list[int]]:
    """Return the replicas of each partition: "1:2,2:3"."""
    try:
        found = [[int32(node.strip()) for node in java_split(replicas, ":")] for replicas in java_split(text, ",")]
    except ValueError as wrong:
        raise CommandFailed(str(wrong)) from None
    for replicas in found:
        if twice := sorted({node for node in replicas if replicas.count(node) > 1}):
            which = ", ".join(map(str, twice))
            raise CommandFailed(f"Partition replica lists may not contain duplicate entries: {which}")
    if len({len(replicas) for replicas in found}) > 1:
        raise CommandFailed(f"Partition {1} has different replication factor: {found[1]}")
    return found


async def _alter(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for topic in await _matching(cluster, options):
        assignments = None
        if options.replica_assignment:
            assignments = _assignment(options.replica_assignment)[len(topic.partitions) :]
        await topics.add_partitions(cluster, topic.name or "", options.partitions, assignments)
    return 0


async def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await topics.delete_topics(cluster, [topic.name or "" for topic in await _matching(cluster, options)])
    return 0


RUN = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}
