"""kafka-verifiable-consumer: it reads a topic as a member of a group, and prints each step as a JSON line."""

from __future__ import annotations

import argparse
import signal
import sys

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import TreeParser, connected, int64, run_for_long
from ottla.cli.shims.verifiable_events import print_event, text
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import Consumed
from ottla.client.consumer_members import CLASSIC, CONSUMER, member_of
from ottla.client.failures import Failure
from ottla.client.group_consumer import GroupConsumer
from ottla.client.partitions import TopicPartition

RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"
RESETS = {"earliest": topics.EARLIEST, "latest": topics.LATEST}
#: Options for which the client supports only one value.
FIXED = {"assignment_strategy": RANGE, "group_instance_id": None}


def main(arguments: list[str]) -> int:
    parser = TreeParser(
        "verifiable-consumer",
        "This tool consumes messages from a specific topic and emits consumer events (e.g. group rebalances, received"
        " messages, and offsets committed) as JSON objects to STDOUT.",
    )
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group-protocol", default=CLASSIC, type=str.lower)
    parser.add_argument("--group-remote-assignor")
    parser.add_argument("--group-id", required=True)
    parser.add_argument("--group-instance-id")
    parser.add_argument("--max-messages", type=int64, default=-1)
    parser.add_argument("--session-timeout", type=int64)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--enable-autocommit", action="store_true")
    parser.add_argument("--reset-policy", default="earliest", choices=tuple(RESETS))
    parser.add_argument("--assignment-strategy", default=RANGE)
    parser.add_argument("--consumer.config", dest="old_config")
    parser.add_argument("--command-config")
    if not arguments:
        parser.print_help()
        return 0
    options = connected(parser.take_old_config(parser.parse_args(arguments), "consumer.config"))
    if options.group_protocol not in (CLASSIC, CONSUMER):
        constant = f"org.apache.kafka.clients.consumer.GroupProtocol.{options.group_protocol.upper()}"
        print(f"No enum constant {constant}", file=sys.stderr)
        return 1
    for name, value in FIXED.items():
        if getattr(options, name) != value:
            parser.error(f"argument --{name.replace('_', '-')}: {getattr(options, name)} is not served here")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return run_for_long(options, lambda cluster: _Run(cluster, options).run())
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    """The state of one run: what was consumed, and the assignment that was printed last."""

    def __init__(self, cluster: ClusterClient, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = cluster.world.clock
        self._count = 0
        self._assignments = 0
        self._assigned: list[TopicPartition] = []

    @property
    def _is_finished(self) -> bool:
        limit: int = self._options.max_messages
        return 0 <= limit <= self._count

    async def run(self) -> int:
        options = self._options
        print_event(self._clock, "startup_complete")
        reset = RESETS[options.reset_policy]
        membership = member_of(
            options.group_protocol,
            self._cluster,
            options.group_id,
            options.group_remote_assignor,
            options.session_timeout,
        )
        async with GroupConsumer(
            self._cluster, options.group_id, [options.topic], reset=reset, member=membership
        ) as member:
            while not self._is_finished:
                consumed = await member.poll()
                self._print_assignment(member)
                if consumed:
                    await self._consume(member, consumed)
        self._print_places("partitions_revoked", self._assigned)
        print_event(self._clock, "shutdown_complete")
        print_event(self._clock, "shutdown_requested")  # the hook that ends Kafka's tool prints it
        return 0

    def _print_assignment(self, member: GroupConsumer) -> None:
        """Print the changes of the assignment. In the classic protocol each change gives up all partitions first."""
        if member.assignments == self._assignments:
            return
        before, now = self._assigned, sorted(member.consumer.positions)
        kept = set(before) & set(now) if self._options.group_protocol == CONSUMER else set()
        self._assignments, self._assigned = member.assignments, now
        if revoked := [place for place in before if place not in kept]:
            self._print_places("partitions_revoked", revoked)
        self._print_places("partitions_assigned", [place for place in now if place not in kept])

    def _print_places(self, name: str, places: list[TopicPartition]) -> None:
        rows = [{"topic": topic, "partition": index} for topic, index in places]
        print_event(self._clock, name, partitions=rows)

    async def _consume(self, member: GroupConsumer, consumed: list[Consumed]) -> None:
        rows: list[dict[str, object]] = []
        offsets: dict[TopicPartition, int] = {}
        total = sum(len(records) for _, _, records, _ in consumed)
        for topic, index, records, _ in consumed:
            if self._options.max_messages >= 0:
                records = records[: self._options.max_messages - self._count]
            if not records:
                continue
            first, last = records[0].offset, records[-1].offset
            offsets[topic, index] = last + 1
            row = {"topic": topic, "partition": index, "count": len(records), "minOffset": first, "maxOffset": last}
            rows.append(row)
            for record in records if self._options.verbose else ():
                facts = {"key": text(record.key), "value": text(record.value), "topic": topic, "partition": index}
                print_event(self._clock, "record_data", **facts, offset=record.offset)
            self._count += len(records)
        print_event(self._clock, "records_consumed", count=total, partitions=rows)
        for place, offset in offsets.items():
            member.processed(place, offset)
        if not self._options.enable_autocommit:
            await self._commit(member, offsets)

    async def _commit(self, member: GroupConsumer, offsets: dict[TopicPartition, int]) -> None:
        error: dict[str, object] = {}
        try:
            await member.commit()
        except Failure as failure:
            error = {"error": reason(failure)}
        rows = [{"topic": topic, "partition": index, "offset": offset} for (topic, index), offset in offsets.items()]
        print_event(self._clock, "offsets_committed", offsets=rows, **error, success=not error)
