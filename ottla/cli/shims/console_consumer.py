"""kafka-console-consumer: records of topics to standard output. With --group it is a member of the group, else it reads directly."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack

from ottla.cli.shims.exceptions import PACKAGE, exception, message, rejected
from ottla.cli.shims.record_text import Printable, Unreadable, Write, formatter
from ottla.cli.shims.tool import (
    ToolParser,
    Unusable,
    client_properties,
    deprecated,
    given,
    int64,
    key_values,
    with_cluster,
)
from ottla.cli.shims.topic_filter import java_pattern
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumed, Consumer, places_of
from ottla.client.consumer_members import CLASSIC, CONSUMER, member_of
from ottla.client.failures import Failure
from ottla.client.fetched import recreated_texts
from ottla.client.group_consumer import GroupConsumer
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode

LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
#: Options that Kafka deprecates, and the options that it recommends.
OLD = {
    "property": "formatter-property",
    "consumer-property": "command-property",
    "consumer.config": "command-config",
    "whitelist": "include",
}


#: The time between two looks for new topics. Kafka's consumer looks at each refresh of its metadata, which is too long for a
#: person who waits.
PATTERN_POLL_S = 1.0
CONSUMER_PACKAGE = "org.apache.kafka.clients.consumer."
RESETS = {"earliest": topics.EARLIEST, "latest": topics.LATEST, "none": None}


#: The error code of a topic that exists, or may exist in a moment.
MAY_COME = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE)


class Counted:
    """Counts the records that were printed, up to the limit of --max-messages."""

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit

    @property
    def is_enough(self) -> bool:
        return self.limit != -1 and self.limit <= self.count


class Output:
    """The standard output of the tool: records are printed until there are enough, or none has arrived for --timeout-ms."""

    def __init__(self, write: Write, counted: Counted, timeout_ms: int, *, skip: bool) -> None:
        """Print by `write`.

        With `skip`, a record that cannot be deserialized is counted and left out; otherwise it ends the tool.
        """
        self.wait_s = timeout_ms / 1000 if timeout_ms >= 0 else None
        self._write = write
        self._counted = counted
        self._skip = skip

    async def write_all(
        self, consumer: Consumer, consumed: AsyncIterator[Consumed]
    ) -> tuple[TopicPartition, int] | None:
        """Print the records, which `consumer` reads. Return the place and the offset after the last one.

        Raises:
            Unusable: a record cannot be deserialized.
        """
        out, last = sys.stdout.buffer, None
        while not self._counted.is_enough:
            try:
                topic, index, records, is_append_time = await asyncio.wait_for(anext(consumed), self.wait_s)
            except TimeoutError:
                self.time_is_up()
                break
            for text in recreated_texts(consumer.recreated):
                print(f"WARN {text}", file=sys.stderr)
            for record in records:
                self._counted.count += 1
                try:
                    out.write(self._write(Printable(index, record, is_append_time=is_append_time)))
                except Unreadable as wrong:
                    out.write(wrong.written)
                    if not self._skip:
                        out.flush()
                        raise
                    print(f"ERROR Error processing message, skipping this message: \n{wrong}", file=sys.stderr)
                last = (topic, index), record.offset + 1
                if self._counted.is_enough:
                    break
            out.flush()
        return last

    def time_is_up(self) -> None:
        print(f"{PACKAGE}TimeoutException", file=sys.stderr)


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse(arguments)
    deprecated(options, OLD, "Option")
    _check(parser, options)
    properties = options.client_properties
    try:
        reset = _reset(properties, from_beginning=options.from_beginning)
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
        return 1
    counted, failed = Counted(options.max_messages), None
    configs = client_properties(options.formatter_config)
    try:
        write = formatter(
            configs | key_values([*options.property, *options.formatter_property]),
            options.formatter,
            options.key_deserializer,
            options.value_deserializer,
        )
        output = Output(write, counted, options.timeout_ms, skip=options.skip_message_on_error)
        with_cluster(options, lambda cluster: consume(cluster, options, properties, reset, output), limited=False)
    except Unusable as wrong:
        failed = str(wrong)
    except Failure as failure:
        failed = exception(failure)
    finally:
        print(f"Processed a total of {counted.count} messages", file=sys.stderr)
        if options.enable_systest_events:
            print("shutdown_complete")
    if failed is not None:
        print(failed, file=sys.stderr)
    return 0 if failed is None else 1


def _parser() -> ToolParser:
    parser = ToolParser("kafka-console-consumer", "Read data from Kafka topics and output it to standard output.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.flags("from-beginning", "skip-message-on-error", "enable-systest-events")
    parser.texts("topic", "include", "whitelist", "group", "offset", "formatter", "formatter-config")
    parser.texts("key-deserializer", "value-deserializer")
    parser.numbers("partition")
    parser.lists("property", "formatter-property", "consumer-property", "command-property")
    parser.add_argument("--max-messages", type=int64, default=-1)
    parser.add_argument("--timeout-ms", type=int64, default=-1)
    parser.add_argument("--isolation-level", choices=tuple(LEVELS), default="read_uncommitted")
    return parser


def _check(parser: ToolParser, options: argparse.Namespace) -> None:
    if sum(given(options, name) for name in ("topic", "include", "whitelist")) != 1:
        parser.usage_error("Exactly one of the following arguments is required: [topic], [include]")
    if options.partition is not None and not options.topic:
        parser.usage_error("The topic is required when partition is specified.")
    if options.offset is not None:
        if options.partition is None:
            parser.usage_error("The partition is required when offset is specified.")
        if options.from_beginning:
            parser.usage_error("Options from-beginning and offset cannot be specified together.")
        if not _is_offset(options.offset) and options.offset.lower() not in ("earliest", "latest"):
            parser.usage_error(
                f"The provided offset value '{options.offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
                "non-negative long."
            )
    if options.group and options.partition is not None:
        parser.usage_error("Options group and partition cannot be specified together.")


def _is_offset(text: str) -> bool:
    try:
        return int64(text) >= 0
    except ValueError:
        return False


async def consume(
    cluster: ClusterClient,
    options: argparse.Namespace,
    properties: Mapping[str, str],
    reset: int | None,
    output: Output,
) -> int:
    group = options.group or properties.get("group.id")
    level = _isolation_level(properties.get("isolation.level", options.isolation_level))
    protocol = _group_protocol(properties.get("group.protocol", CLASSIC))
    async with AsyncExitStack() as stack:
        names = await _topics(cluster, options, properties, output)
        if not names:
            return 0
        if group and options.partition is None:
            membership = member_of(protocol, cluster, group, properties.get("group.remote.assignor"))
            member = GroupConsumer(cluster, group, names, isolation_level=level, reset=reset, member=membership)
            await stack.enter_async_context(member)
            last = await output.write_all(member.consumer, member.fetch())
            if last is not None:
                member.processed(*last)
            return 0
        async with cluster.limit():
            positions = await _positions(cluster, options, names, reset)
        consumer = Consumer(cluster, positions, isolation_level=level, reset=reset)
        await output.write_all(consumer, consumer.fetch())
    return 0


def _isolation_level(value: str) -> int:
    """Return the isolation level of a name in LEVELS.

    Raises:
        Unusable: there is no such level.
    """
    if value not in LEVELS:
        raise _invalid("isolation.level", value, "String must be one of: read_committed, read_uncommitted")
    return LEVELS[value]


def _reset(properties: Mapping[str, str], *, from_beginning: bool) -> int | None:
    """Return where a partition without an offset begins, a value of RESETS.

    Raises:
        Unusable: auto.offset.reset has another value than these, or contradicts --from-beginning.
    """
    value = properties.get("auto.offset.reset")
    if value is None:
        return topics.EARLIEST if from_beginning else topics.LATEST
    if from_beginning and value != "earliest":
        both = f"--from-beginning and 'auto.offset.reset={value}', please remove one option"
        raise Unusable(f"Can't simultaneously specify {both}")
    if value not in RESETS:
        name = "auto.offset.reset"
        if value.startswith("by_duration:"):
            raise Unusable(f"{name}=by_duration (KIP-1106) is not served by this stand-in of the tool")
        rule = "The value must be either 'earliest', 'latest', 'none' or of the format 'by_duration:<PnDTnHnMn.nS.>'."
        raise _invalid(name, value, f"Invalid value `{value}` for configuration {name}. {rule}")
    return RESETS[value]


def _group_protocol(value: str) -> str:
    """Return CLASSIC or CONSUMER (KIP-848).

    Raises:
        Unusable: there is no such protocol.
    """
    if value.lower() not in (CLASSIC, CONSUMER):
        raise _invalid("group.protocol", value, "String must be one of (case insensitive): CLASSIC, CONSUMER")
    return value.lower()


def _invalid(name: str, value: str, rule: str) -> Unusable:
    return Unusable(f"Invalid value {value} for configuration {name}: {rule}")


async def _topics(
    cluster: ClusterClient, options: argparse.Namespace, properties: Mapping[str, str], output: Output
) -> list[str]:
    """Return the topics to read.

    If there is no topic of this name or pattern, or no such partition, wait for it; return none if time is up.

    Raises:
        Unusable: the pattern is not a regular expression.
        Failure: the topic may not be read, or cannot have this name.
    """
    is_member = bool(options.group or "group.id" in properties) and options.partition is None
    if options.topic and is_member:  # a group consumer itself waits for its topics
        return [options.topic]
    try:
        pattern = java_pattern(re.escape(options.topic) if options.topic else options.include or options.whitelist)
    except Failure as fault:
        raise Unusable(fault.cause) from None
    is_excluded = properties.get("exclude.internal.topics", "true").strip().lower() != "false"
    with_internal = bool(options.topic) or not is_excluded
    clock = cluster.world.clock
    end_ms = None if output.wait_s is None else clock.mono_ms() + output.wait_s * 1000
    while True:
        async with cluster.limit():
            found = (await cluster.metadata([options.topic] if options.topic else None, create=True)).topics
        if wrong := [row.error_code for row in found if options.topic and row.error_code not in MAY_COME]:
            raise rejected(ErrorCode(wrong[0]), message(wrong[0]))
        present = [row for row in found if not row.error_code and (with_internal or not row.is_internal)]
        if options.partition is not None:
            present = [
                row for row in present if any(each.partition_index == options.partition for each in row.partitions)
            ]
        names = sorted(row.name or "" for row in present)
        if matching := [name for name in names if pattern.fullmatch(name)]:
            return matching
        if end_ms is not None and clock.mono_ms() >= end_ms:
            output.time_is_up()
            return []
        await asyncio.sleep(PATTERN_POLL_S)


async def _positions(
    cluster: ClusterClient, options: argparse.Namespace, names: Iterable[str], reset: int | None
) -> dict[TopicPartition, int]:
    """Return where each partition begins: by --offset, and without it by --from-beginning or auto.offset.reset.

    Raises:
        Unusable: auto.offset.reset is none, and no offset is given.
    """
    wanted = None if options.partition is None else [options.partition]
    start = None if options.offset is None else options.offset.lower()
    timestamp = topics.EARLIEST if start == "earliest" or options.from_beginning else topics.LATEST
    if options.partition is None:
        if reset is None:
            raise Unusable(f"{CONSUMER_PACKAGE}NoOffsetForPartitionException: Undefined offset with no reset policy")
        timestamp = reset
    found: dict[TopicPartition, int] = {}
    for name in names:
        offsets = await topics.list_offsets(cluster, name, timestamp, wanted)
        if start is not None and _is_offset(start):
            offsets = dict.fromkeys(offsets, int64(start))
        found |= places_of(name, offsets)
    return found
