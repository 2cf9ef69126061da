"""kafka-console-consumer: records of a topic to standard output.

Partitions are read directly. With --group, reading starts from the group's offsets and commits them at the end, but the
group is not joined: no rebalance, and not for two consumers of one group at once.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable

from ottla.cli.client import groups, topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer, places_of
from ottla.cli.errors import CommandFailed
from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import Parser, pairs, with_cluster
from ottla.protocol.records import Record


def main(arguments: list[str]) -> int:
    options = _parser().parse(arguments)
    if not options.topic:
        print("Exactly one of --include/--topic is required.", file=sys.stderr)
        return 1
    if options.offset is not None and options.partition is None:
        print("The partition is required when offset is specified.", file=sys.stderr)
        return 1
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    try:
        return with_cluster(options, lambda cluster: consume(cluster, options, counted), limited=False)
    except CommandFailed as failure:
        print(reason(failure), file=sys.stderr)
        return 1
    finally:
        print(f"Processed a total of {count} messages", file=sys.stderr)


def _parser() -> Parser:
    parser = Parser("kafka-console-consumer", "Read data from Kafka topics and output it to standard output.")
    parser.add_bootstrap(old_names=("--consumer.config",))
    parser.add_argument("--topic", "--include", "--whitelist", dest="topic")
    parser.add_argument("--from-beginning", action="store_true")
    parser.add_argument("--group")
    parser.add_argument("--partition", type=int)
    parser.add_argument("--offset")
    parser.add_argument("--max-messages", type=int, default=-1)
    parser.add_argument("--timeout-ms", type=int, default=-1)
    parser.add_argument("--property", "--formatter-property", action="append", dest="properties")
    parser.add_argument("--consumer-property", "--command-property", action="append", dest="consumer_properties")
    parser.add_argument("--isolation-level", choices=("read_uncommitted", "read_committed"), default="read_uncommitted")
    for name in ("formatter", "formatter-config", "key-deserializer", "value-deserializer"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--skip-message-on-error", action="store_true")
    parser.add_argument("--enable-systest-events", action="store_true")
    return parser


async def consume(cluster: ClusterClient, options: argparse.Namespace, counted: Callable[[], None]) -> int:
    group = options.group or pairs(options.consumer_properties).get("group.id")
    async with cluster.limit():
        positions = await _positions(cluster, options, group)
    level = READ_COMMITTED if options.isolation_level == "read_committed" else READ_UNCOMMITTED
    consumer = Consumer(cluster, places_of(options.topic, positions), isolation_level=level)
    write = formatter(pairs(options.properties))
    left = options.max_messages
    done = dict(positions)
    fetched = consumer.fetch()
    try:
        while left:
            wait_s = options.timeout_ms / 1000 if options.timeout_ms >= 0 else None
            try:
                _, index, records = await asyncio.wait_for(anext(fetched), wait_s)
            except TimeoutError:
                print("Error processing message, terminating consumer process: ", file=sys.stderr)
                break
            for record in records if left < 0 else records[:left]:
                sys.stdout.buffer.write(write(index, record))
                done[index] = record.offset + 1
                counted()
                left -= left > 0
            sys.stdout.buffer.flush()
    finally:
        if group:
            async with cluster.limit():
                places = {(options.topic, index): offset for index, offset in done.items()}
                await groups.commit_offsets(cluster, group, places)
    return 0


async def _positions(cluster: ClusterClient, options: argparse.Namespace, group: str | None) -> dict[int, int]:
    wanted = None if options.partition is None else [options.partition]
    first = await topics.list_offsets(cluster, options.topic, topics.EARLIEST, wanted)
    if options.offset is not None and options.offset.lstrip("-").isdecimal():
        return {index: int(options.offset) for index in first}
    if options.from_beginning or options.offset == "earliest":
        start = first
    else:
        start = await topics.list_offsets(cluster, options.topic, topics.LATEST, wanted)
    committed = await groups.committed_offsets(cluster, group) if group else {}
    return {index: committed.get((options.topic, index), offset) for index, offset in start.items()}


def formatter(properties: dict[str, str]) -> Callable[[int, Record], bytes]:
    """The default formatter of Kafka: what is asked for, divided by tabs."""

    def on(name: str, default: str = "false") -> bool:
        return properties.get(name, default).lower() == "true"

    key_separator = properties.get("key.separator", "\t").encode()
    line_separator = properties.get("line.separator", "\n").encode()
    headers_separator = properties.get("headers.separator", ",").encode()
    null = properties.get("null.literal", "null").encode()

    def write(index: int, record: Record) -> bytes:
        parts: list[bytes] = []
        if on("print.timestamp"):
            parts.append(f"CreateTime:{record.timestamp}".encode())
        if on("print.partition"):
            parts.append(f"Partition:{index}".encode())
        if on("print.offset"):
            parts.append(f"Offset:{record.offset}".encode())
        if on("print.headers"):
            shown = [name.encode() + b":" + (null if value is None else value) for name, value in record.headers]
            parts.append(headers_separator.join(shown) or b"NO_HEADERS")
        if on("print.key"):
            parts.append(null if record.key is None else record.key)
        if on("print.value", "true"):
            parts.append(null if record.value is None else record.value)
        return key_separator.join(parts) + line_separator

    return write
