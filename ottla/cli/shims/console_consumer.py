"""kafka-console-consumer: records of topics to standard output. With --group it is a member of the group, else it reads directly."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack

from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumed, Consumer, places_of
from ottla.cli.client.consumer_members import CLASSIC, CONSUMER, member_of
from ottla.cli.client.group_consumer import GroupConsumer
from ottla.cli.client.leaders import TopicPartition
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import PACKAGE, exception
from ottla.cli.shims.record_text import Write, formatter
from ottla.cli.shims.tool import Parser, Unusable, deprecated, given, key_values, with_cluster

LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
#: Options that Kafka deprecates, and what it says is to be used.
OLD = {
    "property": "formatter-property",
    "consumer-property": "command-property",
    "consumer.config": "command-config",
    "whitelist": "include",
}


class Counted:
    """Counts the records that were printed, up to the limit of --max-messages."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit

    @property
    def is_enough(self) -> bool:
        return 0 <= self.limit <= self.count


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse(arguments)
    deprecated(options, OLD, "Option")
    _check(parser, options)
    counted, failed = Counted(options.max_messages), None
    try:
        write = formatter(
            key_values([*options.property, *options.formatter_property]),
            options.formatter,
            options.key_deserializer,
            options.value_deserializer,
        )
        with_cluster(options, lambda cluster: consume(cluster, options, write, counted), limited=False)
    except Unusable as wrong:
        failed = str(wrong)
    except CommandFailed as failure:
        failed = exception(failure)
    finally:
        print(f"Processed a total of {counted.count} messages", file=sys.stderr)
    if failed is not None:
        print(failed, file=sys.stderr)
    return 0 if failed is None else 1


def _parser() -> Parser:
    parser = Parser("kafka-console-consumer", "Read data from Kafka topics and output it to standard output.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.flags("from-beginning", "skip-message-on-error", "enable-systest-events")
    parser.texts("topic", "include", "whitelist", "group", "offset", "formatter", "formatter-config")
    parser.texts("key-deserializer", "value-deserializer")
    parser.numbers("partition")
    parser.lists("property", "formatter-property", "consumer-property", "command-property")
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--timeout-ms", type=int, default=-1)
    parser.add_argument("--isolation-level", choices=tuple(LEVELS), default="read_uncommitted")
    return parser


def _check(parser: Parser, options: argparse.Namespace) -> None:
    if sum(given(options, name) for name in ("topic", "include", "whitelist")) != 1:
        parser.usage_error("Exactly one of the following arguments is required: [topic], [include]")
    if options.partition is not None and not options.topic:
        parser.usage_error("The topic is required when partition is specified.")
    if options.offset is not None:
        if options.partition is None:
            parser.usage_error("The partition is required when offset is specified.")
        if options.from_beginning:
            parser.usage_error("Options from-beginning and offset cannot be specified together.")
        is_number = options.offset.isdecimal()
        if not is_number and options.offset.lower() not in ("earliest", "latest"):
            parser.usage_error(
                f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
                "non-negative long."
            )
    if options.group and options.partition is not None:
        parser.usage_error("Options group and partition cannot be specified together.")


async def consume(cluster: ClusterClient, options: argparse.Namespace, write: Write, counted: Counted) -> int:
    properties = options.client_properties | key_values([*options.consumer_property, *options.command_property])
    group = options.group or properties.get("group.id")
    level = _isolation_level(properties.get("isolation.level", options.isolation_level))
    protocol = _group_protocol(properties.get("group.protocol", CLASSIC))
    wait_s = options.timeout_ms / 1000 if options.timeout_ms >= 0 else None
    async with AsyncExitStack() as stack:
        async with cluster.limit():
            names = await _topics(cluster, options)
        if group and options.partition is None:
            reset = topics.EARLIEST if options.from_beginning else topics.LATEST
            membership = member_of(protocol, cluster, group, properties.get("group.remote.assignor"))
            member = GroupConsumer(cluster, group, names, isolation_level=level, reset=reset, member=membership)
            await stack.enter_async_context(member)
            last = await _print(member.fetch(), write, counted, wait_s)
            if last is not None:
                member.processed(*last)
            return 0
        async with cluster.limit():
            positions = await _positions(cluster, options, names)
        consumer = Consumer(cluster, positions, isolation_level=level, reset=topics.EARLIEST)
        await _print(consumer.fetch(), write, counted, wait_s)
    return 0


def _isolation_level(value: str) -> int:
    """Returns a value of LEVELS.

    Raises:
        Unusable: there is no such level.
    """
    if value not in LEVELS:
        raise _invalid("isolation.level", value, "String must be one of: read_committed, read_uncommitted")
    return LEVELS[value]


def _group_protocol(value: str) -> str:
    """Returns CLASSIC or CONSUMER (KIP-848).

    Raises:
        Unusable: there is no such protocol.
    """
    if value.lower() not in (CLASSIC, CONSUMER):
        raise _invalid("group.protocol", value, "String must be one of (case insensitive): CLASSIC, CONSUMER")
    return value.lower()


def _invalid(name: str, value: str, rule: str) -> Unusable:
    return Unusable(f"Invalid value {value} for configuration {name}: {rule}")


async def _print(
    consumed: AsyncIterator[Consumed], write: Write, counted: Counted, wait_s: float | None
) -> tuple[TopicPartition, int] | None:
    """Print records until there are enough, or none came for `wait_s`. Returns the place and the offset after the last one."""
    out, last = sys.stdout.buffer, None
    while not counted.is_enough:
        try:
            topic, index, records = await asyncio.wait_for(anext(consumed), wait_s)
        except TimeoutError:
            print(f"{PACKAGE}TimeoutException", file=sys.stderr)
            break
        for record in records:
            counted.count += 1
            out.write(write(topic, index, record))
            last = (topic, index), record.offset + 1
            if counted.is_enough:
                break
        out.flush()
    return last


async def _topics(cluster: ClusterClient, options: argparse.Namespace) -> list[str]:
    if options.topic:
        return [options.topic]
    pattern = re.compile(options.include or options.whitelist)
    return [name for name in await cluster.topic_names() if pattern.fullmatch(name)]


async def _positions(
    cluster: ClusterClient, options: argparse.Namespace, names: Iterable[str]
) -> dict[TopicPartition, int]:
    wanted = None if options.partition is None else [options.partition]
    start = "earliest" if options.from_beginning else (options.offset or "latest").lower()
    found: dict[TopicPartition, int] = {}
    for name in names:
        timestamp = topics.EARLIEST if start == "earliest" else topics.LATEST
        offsets = await topics.list_offsets(cluster, name, timestamp, wanted)
        if start.isdecimal():
            offsets = dict.fromkeys(offsets, int(start))
        found |= places_of(name, offsets)
    return found
