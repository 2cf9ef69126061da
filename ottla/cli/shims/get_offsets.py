"""kafka-get-offsets: the first, last or any other offsets of partitions, one a line as topic:partition:offset."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable

from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import exception, reason
from ottla.cli.shims.tool import ToolParser, int32, int64, java_split, with_cluster
from ottla.cli.shims.topic_filter import included
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure

#: The timestamps of ListOffsets that stand for positions.
PLACES = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
    "earliest-pending-upload": -6,
}
CHOICES = " / ".join(f"{number} or {name}" for name, number in PLACES.items())
_RULE = re.compile(r"([^:,]*)(?::(?:([0-9]+)|(?:([0-9]+)-([0-9]*))|(?:-([0-9]*)))?)?")

Wanted = Callable[[str, int], bool]


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "kafka-get-offsets", "An interactive shell for getting topic-partition offsets.", "Error occurred: "
    )
    parser.add_argument("--bootstrap-server")
    parser.texts("command-config", "topic-partitions", "topic", "partitions")
    parser.add_argument("--time", default="latest")
    parser.flags("exclude-internal-topics")
    options = parser.parse(arguments)
    parser.check_servers(options.bootstrap_server)
    try:
        return with_cluster(options, lambda cluster: show(cluster, options))
    except Failure as failure:
        print(f"Error occurred: {reason(failure)}", file=sys.stderr)
        return 1


async def show(cluster: ClusterClient, options: argparse.Namespace) -> int:
    wanted, timestamp = _filter(options), _timestamp(options.time)
    found: dict[str, list[int]] = {}
    for topic in (await cluster.metadata(None)).topics:
        name = topic.name or ""
        indexes = [part.partition_index for part in topic.partitions if wanted(name, part.partition_index)]
        if indexes and not (options.exclude_internal_topics and topic.is_internal):
            found[name] = indexes
    if not found:
        raise CommandFailed("Could not match any topic-partitions with the specified filters")
    for name, indexes in sorted(found.items()):
        for index, offset in (await _offsets(cluster, name, timestamp, indexes)).items():
            if offset >= 0:
                print(f"{name}:{index}:{offset}")
    return 0


async def _offsets(cluster: ClusterClient, name: str, timestamp: int, indexes: list[int]) -> dict[int, int]:
    """Return the offsets of the partitions.

    A partition whose leader answers with an error is named on standard error, and left out.
    """
    try:
        return await topics.list_offsets(cluster, name, timestamp, indexes)
    except Failure as failure:
        if failure.code is None:
            raise
        if len(indexes) == 1:
            print(
                f"Skip getting offsets for topic-partition {name}-{indexes[0]} due to error: {exception(failure)}",
                file=sys.stderr,
            )
            return {}
    found: dict[int, int] = {}
    for index in indexes:
        found |= await _offsets(cluster, name, timestamp, [index])
    return found


def _timestamp(text: str) -> int:
    if text in PLACES:
        return PLACES[text]
    try:
        return int64(text)
    except ValueError:
        wrong = f"Malformed time argument {text}. Please use {CHOICES}, or a specified long format timestamp"
        raise CommandFailed(wrong) from None


def _filter(options: argparse.Namespace) -> Wanted:
    if options.topic_partitions is None:
        return _by_topic(options.topic, options.partitions)
    if options.topic is not None or options.partitions is not None:
        raise CommandFailed("--topic-partitions cannot be used with --topic or --partitions")
    rules = [_rule(text) for text in java_split(options.topic_partitions, ",")]
    return lambda name, index: any(rule(name, index) for rule in rules)


def _by_topic(topic: str | None, partitions: str | None) -> Wanted:
    try:
        indexes = {int(text) for text in partitions.split(",")} if partitions else set()
    except ValueError:
        raise CommandFailed(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
        ) from None
    return _matching(topic, indexes or None)


def _rule(text: str) -> Wanted:
    """Return the filter of TOPIC:1, TOPIC:2-5 (without 5), TOPIC:2-, TOPIC:-5 or TOPIC. The topic may be left out."""
    found = _RULE.fullmatch(text)
    if found is None:
        raise CommandFailed(f"org.apache.kafka.tools.TerseException: Invalid rule specification: {text}")
    topic, one, first, end, only_end = found.groups()
    try:
        if one:
            return _matching(topic, {int32(one)})
        last = end or only_end
        return _matching(topic, range(int32(first or "0"), int32(last) if last else sys.maxsize))
    except ValueError as wrong:
        raise CommandFailed(str(wrong)) from None


def _matching(topic: str | None, indexes: Iterable[int] | None) -> Wanted:
    pattern = included(topic or ".*")
    return lambda name, index: bool(pattern.fullmatch(name)) and (indexes is None or index in indexes)
