"""kafka-console-share-consumer: records of a topic, shared with the other members of a share group, to standard output."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.shims.exceptions import exception
from ottla.cli.shims.record_text import Printable, Write, formatter
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
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.share_consumer import Acknowledge, AcquiredRecords, ShareConsumer

GROUP = "console-share-consumer"
#: Options that Kafka deprecates, and the options that it recommends.
OLD = {
    "consumer-property": "command-property",
    "consumer-config": "command-config",
    "property": "formatter-property",
}


class Printed:
    """Counts the records that were printed."""

    count = 0


def main(arguments: list[str]) -> int:
    parser = _parser()
    options = parser.parse(arguments, bootstrap=False)
    _check(parser, options)
    deprecated(options, OLD, "Option")
    parser.connect(options)
    printed, failed = Printed(), None
    try:
        from_file = client_properties(options.formatter_config)
        write = formatter(
            from_file | key_values([*options.property, *options.formatter_property]),
            options.formatter,
            options.key_deserializer,
            options.value_deserializer,
        )
        group = _group(parser, options)
        with_cluster(options, lambda cluster: _consume(cluster, options, group, write, printed), limited=False)
    except Unusable as wrong:
        parser.usage_error(str(wrong))
    except Failure as failure:
        failed = exception(failure)
    finally:
        print(f"Processed a total of {printed.count} messages", file=sys.stderr)
        if options.enable_systest_events:
            print("shutdown_complete")
    if failed is not None:
        print(failed, file=sys.stderr)
    return 0 if failed is None else 1


def _parser() -> ToolParser:
    parser = ToolParser(
        "kafka-console-share-consumer",
        "This tool helps to read data from Kafka topics using share groups and outputs it to standard output.",
    )
    parser.add_bootstrap(old_names=("--consumer-config",))
    parser.flags("reject", "release", "reject-message-on-error", "enable-systest-events")
    parser.texts("topic", "group", "formatter", "formatter-config", "key-deserializer", "value-deserializer")
    parser.lists("property", "formatter-property", "consumer-property", "command-property")
    parser.add_argument("--max-messages", type=int64, default=-1)
    parser.add_argument("--timeout-ms", type=int64, default=-1)
    return parser


def _check(parser: ToolParser, options: argparse.Namespace) -> None:
    if not options.topic:
        parser.usage_error("--topic is a required argument")
    parser.require(options, "bootstrap-server")
    if options.reject and options.release:
        parser.usage_error("At most one of --reject and --release may be specified.")
    for old, new in OLD.items():
        if given(options, old) and given(options, new):
            parser.usage_error(f"Options --{old} and --{new} cannot be specified together.")


def _group(parser: ToolParser, options: argparse.Namespace) -> str:
    properties = key_values([*options.consumer_property, *options.command_property])
    places = (options.group, options.file_properties.get("group.id"), properties.get("group.id"))
    names = list(dict.fromkeys(filter(None, places)))
    if len(names) > 1:
        shown = ", ".join(f"'{name}'" for name in names)
        parser.usage_error(
            "The group ids provided in different places (directly using '--group', via '--consumer-property', or via"
            f" '--consumer-config') do not match. Detected group ids: {shown}"
        )
    return names[0] if names else GROUP


async def _consume(
    cluster: ClusterClient, options: argparse.Namespace, group: str, write: Write, printed: Printed
) -> int:
    clock, out = cluster.world.clock, sys.stdout.buffer
    kind = Acknowledge.REJECT if options.reject else Acknowledge.RELEASE if options.release else Acknowledge.ACCEPT
    last_ms = clock.mono_ms()
    async with ShareConsumer(cluster, group, [options.topic]) as member:
        while not 0 <= options.max_messages <= printed.count:
            acquired = await member.poll()
            if acquired:
                last_ms = clock.mono_ms()
            elif 0 <= options.timeout_ms < clock.mono_ms() - last_ms:
                break
            if options.max_messages >= 0:
                acquired = acquired[: options.max_messages - printed.count]
            rejected = await _print(acquired, write, printed, options.reject_message_on_error)
            out.flush()
            await member.acknowledge((row for row in acquired if row not in rejected), kind)
            await member.acknowledge(rejected, Acknowledge.REJECT)
    return 0


async def _print(
    acquired: list[AcquiredRecords], write: Write, printed: Printed, tolerant: bool
) -> list[AcquiredRecords]:
    """Print the records. Return those that cannot be shown and are to be rejected."""
    rejected = []
    for row in acquired:
        printed.count += 1
        try:
            sys.stdout.buffer.write(write(Printable(row.partition, row.record, row.deliveries, row.is_append_time)))
        except Unusable:
            if not tolerant:
                raise
            rejected.append(row)
    return rejected
