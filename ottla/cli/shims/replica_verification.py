"""kafka-replica-verification: it compares the batches of all replicas of partitions, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from datetime import datetime

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import ToolParser, Unusable, int64, with_cluster
from ottla.cli.shims.topic_filter import included
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.fetched import fetch_from_replica
from ottla.client.partitions import TopicPartition
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.records.batch import BatchView, iter_batches


def main(arguments: list[str]) -> int:
    parser = ToolParser(
        "kafka-replica-verification", "Validate that all replicas for a set of topics have the same data."
    )
    parser.add_argument("--broker-list", dest="bootstrap_server")
    parser.add_argument("--fetch-size", type=int64, default=1024 * 1024)
    parser.add_argument("--max-wait-ms", type=int64, default=1_000)
    parser.add_argument("--topics-include", default=".*")
    parser.add_argument("--time", type=int64, default=-1)
    parser.add_argument("--report-interval-ms", type=int64, default=30_000)
    options = parser.parse(arguments, bootstrap=False)
    if options.bootstrap_server is None:
        parser.usage_error('Missing required argument "[broker-list]"')
    parser.check_servers(options.bootstrap_server)
    options.command_config, options.client_properties = None, {}
    try:
        wanted = included(options.topics_include, end="")
        return with_cluster(options, lambda cluster: _run(cluster, options, wanted), limited=False)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    except Unusable as different:
        print(different)
    return 1


async def _run(cluster: ClusterClient, options: argparse.Namespace, wanted: re.Pattern[str]) -> int:
    async with cluster.limit():
        replicas = _Replicas(cluster, options)
        await replicas.find(wanted)
    if not replicas.offsets:
        # Kafka's tool logs this.
        print(
            f"ERROR No topics found. [topics-include] {options.topics_include} if specified, is filtering out all topics.",
            file=sys.stderr,
        )
        return 1
    print(f"{_now(cluster)}: verification process is started", flush=True)
    clock = cluster.world.clock
    reported_ms = clock.mono_ms()
    while True:
        lag, place = await replicas.verify()
        if clock.mono_ms() - reported_ms > options.report_interval_ms:
            reported_ms = clock.mono_ms()
            print(
                f"{_now(cluster)}: max lag is {lag} for partition {_text(place)} at offset {replicas.offsets[place]}"
                f" among {len(replicas.offsets)} partitions",
                flush=True,
            )


def _now(cluster: ClusterClient) -> str:
    wall_ms = cluster.world.clock.wall_ms()
    return datetime.fromtimestamp(wall_ms / 1000).strftime("%Y-%m-%d %H:%M:%S,") + f"{wall_ms % 1000:03d}"


def _text(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"


class _Replicas:
    """The partitions with the brokers that have them, and the offset up to which all replicas of each are equal."""

    def __init__(self, cluster: ClusterClient, options: argparse.Namespace) -> None:
        self._cluster = cluster
        self._options = options
        self._topic_ids: dict[str, bytes] = {}
        self._by_node: dict[int, list[TopicPartition]] = {}
        self.offsets: dict[TopicPartition, int] = {}

    async def find(self, wanted: re.Pattern[str]) -> None:
        """Find the topics with these names, and the offsets to begin at."""
        for topic in (await self._cluster.metadata(None)).topics:
            name = topic.name or ""
            if not wanted.fullmatch(name):
                continue
            self._topic_ids[name] = topic.topic_id
            for part in topic.partitions:
                for node in part.replica_nodes:
                    self._by_node.setdefault(node, []).append((name, part.partition_index))
            found = await topics.list_offsets(self._cluster, name, self._options.time)
            self.offsets.update(((name, index), offset) for index, offset in found.items())

    async def verify(self) -> tuple[int, TopicPartition]:
        """Compare one Fetch from each broker. Return the largest lag behind a high watermark, and its partition.

        Raises:
            Unusable: two replicas have batches that end at different offsets.
        """
        options = self._options
        fetches = (
            fetch_from_replica(
                self._cluster,
                node,
                {place: self.offsets[place] for place in places},
                self._topic_ids,
                bytes_max=options.fetch_size,
                wait_ms=options.max_wait_ms,
            )
            for node, places in self._by_node.items()
        )
        fetched = dict(zip(self._by_node, await asyncio.gather(*fetches), strict=True))
        lags = {}
        for place in self.offsets:
            parts = {node: found[place] for node, found in fetched.items() if place in found}
            self._compare(place, parts)
            lags[place] = max((part.high_watermark for part in parts.values()), default=-1) - self.offsets[place]
        slowest = max(lags, key=lambda place: lags[place])
        return lags[slowest], slowest

    def _compare(self, place: TopicPartition, parts: Mapping[int, PartitionData]) -> None:
        """Compare the batches of all replicas, as long as each replica has a next committed one."""
        batches = {node: _committed(part) for node, part in parts.items()}
        while batches:
            heads = {node: next(left, None) for node, left in batches.items()}
            first_node, first = next(iter(heads.items()))
            if first is None or any(batch is None for batch in heads.values()):
                return
            for node, batch in heads.items():
                assert batch is not None
                if batch.last_offset != first.last_offset:
                    raise Unusable(
                        f"{_now(self._cluster)}: partition {_text(place)}: replica {first_node}'s offset"
                        f" {first.last_offset} doesn't match replica {node}'s offset {batch.last_offset}"
                    )
                if batch.crc != first.crc:
                    print(
                        f"{_now(self._cluster)}: partition {_text(place)} has unmatched checksum at offset"
                        f" {batch.last_offset}; replica {first_node}'s checksum {first.crc}; replica {node}'s checksum"
                        f" {batch.crc}",
                        flush=True,
                    )
            self.offsets[place] = first.next_offset


def _committed(part: PartitionData) -> Iterator[BatchView]:
    read = part.records or b""
    assert not isinstance(read, list), "what was decoded is in one buffer"
    return (batch for batch in iter_batches(read) if batch.last_offset < part.high_watermark)
