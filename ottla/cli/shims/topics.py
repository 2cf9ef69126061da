"""kafka-topics: --list, --describe, --create, --alter, --delete."""

from __future__ import annotations

import argparse
import re
import sys

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.configs import describe_configs
from ottla.cli.client.failures import check
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.tool import Parser, reason, with_cluster
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from ottla.protocol.primitives import uuid_to_str

ACTIONS = ("list", "describe", "create", "alter", "delete")
ONE_ACTION = "Command must include exactly one action: --list, --describe, --create, --alter or --delete"
COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both."
)
FILTERS = ("under-replicated-partitions", "unavailable-partitions", "under-min-isr-partitions", "at-min-isr-partitions")
INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")
#: The sources of DescribeConfigs that are shown: the topic, the broker, all brokers, the properties file.
SHOWN_SOURCES = (1, 2, 3, 4)


def parser() -> Parser:
    made = Parser("kafka-topics", "Create, delete, describe, or change a topic.")
    made.add_bootstrap()
    for action in ACTIONS:
        made.add_argument(f"--{action}", action="store_true")
    made.add_argument("--topic")
    made.add_argument("--topic-id")
    made.add_argument("--partitions", type=int)
    made.add_argument("--replication-factor", type=int)
    made.add_argument("--replica-assignment")
    made.add_argument("--config", action="append", default=[], metavar="NAME=VALUE")
    for flag in ("if-not-exists", "if-exists", "exclude-internal", "topics-with-overrides", *FILTERS):
        made.add_argument(f"--{flag}", action="store_true")
    made.add_argument("--partition-size-limit-per-response", type=int)
    return made


def main(arguments: list[str]) -> int:
    made = parser()
    options = made.parse(arguments)
    if sum(getattr(options, action) for action in ACTIONS) != 1:
        made.error(ONE_ACTION)
    if not options.topic and (options.create or options.alter or options.delete):
        made.error('Missing required argument "[topic]"')
    action = next(name for name in ACTIONS if getattr(options, name))
    try:
        return with_cluster(options, lambda cluster: RUN[action](cluster, options))
    except CommandFailed as failure:
        print(f"Error while executing topic command : {reason(failure)}")
        return 1


async def _matching(cluster: ClusterClient, options: argparse.Namespace) -> list[MetadataResponseTopic]:
    """Returns the topics that --topic (a regular expression) names. CommandFailed for none, unless --if-exists."""
    found = sorted((await cluster.metadata(None)).topics, key=lambda topic: str(topic.name))
    if options.topic_id:
        found = [topic for topic in found if uuid_to_str(topic.topic_id) == options.topic_id]
        wanted: str | None = options.topic_id
    else:
        wanted = options.topic
        if wanted is not None:
            try:
                pattern = re.compile(wanted.replace(",", "|"))
            except re.error as fault:
                raise CommandFailed(f"{wanted} is an invalid regex: {fault}") from None
            found = [topic for topic in found if pattern.fullmatch(topic.name or "")]
    if options.exclude_internal:
        found = [topic for topic in found if topic.name not in INTERNAL]
    if wanted is not None and not found and not options.if_exists:
        kind = "TopicId" if options.topic_id else "Topic"
        raise CommandFailed(f"{kind} '{wanted}' does not exist as expected")
    return found


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    options.if_exists = True
    for topic in await _matching(cluster, options):
        print(topic.name)
    return 0


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for topic in await _matching(cluster, options):
        await _describe_one(cluster, topic, options)
    return 0


async def _describe_one(cluster: ClusterClient, topic: MetadataResponseTopic, options: argparse.Namespace) -> None:
    configs = await describe_configs(cluster, "topic", topic.name or "", None)
    overrides = sorted(f"{entry.name}={entry.value}" for entry in configs if entry.config_source in SHOWN_SOURCES)
    set_on_topic = any(entry.config_source == 1 for entry in configs)
    if options.topics_with_overrides and not set_on_topic:
        return
    min_isr = next((int(entry.value or 1) for entry in configs if entry.name == "min.insync.replicas"), 1)
    partitions = sorted(topic.partitions, key=lambda part: part.partition_index)
    filtered = any(getattr(options, name.replace("-", "_")) for name in FILTERS)
    if not filtered:
        copies = len(partitions[0].replica_nodes) if partitions else 0
        print(
            f"Topic: {topic.name}\tTopicId: {uuid_to_str(topic.topic_id)}\tPartitionCount: {len(partitions)}"
            f"\tReplicationFactor: {copies}\tConfigs: {','.join(overrides)}"
        )
    if options.topics_with_overrides:
        return
    for part in partitions:
        if filtered and not _passes(part, min_isr, options):
            continue
        leader = part.leader_id if part.leader_id >= 0 else "none"
        print(
            f"\tTopic: {topic.name}\tPartition: {part.partition_index}\tLeader: {leader}"
            f"\tReplicas: {_ids(part.replica_nodes)}\tIsr: {_ids(part.isr_nodes)}\tElr: \tLastKnownElr: "
        )


def _passes(part: MetadataResponsePartition, min_isr: int, options: argparse.Namespace) -> bool:
    in_sync = len(part.isr_nodes)
    return bool(
        (options.under_replicated_partitions and in_sync < len(part.replica_nodes))
        or (options.unavailable_partitions and part.leader_id < 0)
        or (options.under_min_isr_partitions and in_sync < min_isr)
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
        if not equals:
            raise CommandFailed('Invalid topic config: all configs to be added must be in the format "key=val".')
        configs.append(CreatableTopicConfig(name=key.strip(), value=value.strip()))
    topic = CreatableTopic(
        name=name,
        num_partitions=-1 if options.partitions is None else options.partitions,
        replication_factor=-1 if options.replication_factor is None else options.replication_factor,
        configs=configs,
    )
    if options.replica_assignment:
        topic.num_partitions = topic.replication_factor = -1
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=index, broker_ids=[int(node) for node in replicas.split(":")])
            for index, replicas in enumerate(options.replica_assignment.split(","))
        ]
    cluster.doing = "createTopics"
    response = await cluster.request(CreateTopicsRequest(topics=[topic], timeout_ms=cluster.timeout_ms))
    result = response.topics[0]
    if result.error_code == ErrorCode.TOPIC_ALREADY_EXISTS and options.if_not_exists:
        return 0
    check(f"topic {name}", result.error_code, result.error_message)
    print(f"Created topic {name}.")
    return 0


async def _alter(cluster: ClusterClient, options: argparse.Namespace) -> int:
    found = await _matching(cluster, options)
    if options.partitions is None:
        print('Missing required argument "[partitions]"', file=sys.stderr)
        return 1
    for topic in found:
        await topics.add_partitions(cluster, topic.name or "", options.partitions)
    return 0


async def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await topics.delete_topics(cluster, [topic.name or "" for topic in await _matching(cluster, options)])
    return 0


RUN = {"list": _list, "describe": _describe, "create": _create, "alter": _alter, "delete": _delete}
