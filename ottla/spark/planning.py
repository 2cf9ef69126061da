"""The plan of a read: its partitions, and the offsets at which each begins and ends now, as the cluster reports them."""

from __future__ import annotations

import re

from ottla.spark.client.cluster import BlockingCluster
from ottla.spark.client.offsets import EARLIEST, LATEST, all_partitions, list_offsets
from ottla.spark.errors import ConnectorError
from ottla.spark.options import ConnectorOptions, Limit
from ottla.spark.ranges import Offsets, Range, TopicPartition


def partitions_of(cluster: BlockingCluster, options: ConnectorOptions) -> list[TopicPartition]:
    """Return the selected partitions. Raises ConnectorError if a named topic or partition does not exist."""
    if options.selection == "subscribe":
        return all_partitions((each.name, each.partitions) for each in cluster.topics(options.selected))
    if options.selection == "assign":
        counts = {each.name: each.partitions for each in cluster.topics({name for name, _ in options.selected})}
        for name, index in options.selected:
            if index >= counts[name]:
                raise ConnectorError(f"option assign has {name}-{index}, and the topic has {counts[name]} partitions")
        return list(options.selected)
    pattern = re.compile(options.selected)
    topics = [each for each in cluster.topics() if not each.is_internal and pattern.fullmatch(each.name)]
    return all_partitions((each.name, each.partitions) for each in topics)


def offsets_at(
    cluster: BlockingCluster, options: ConnectorOptions, places: list[TopicPartition], limit: Limit, edge: str
) -> Offsets:
    """Return the offset of each partition for the option `edge` (starting or ending).

    Raises ConnectorError if the option does not name exactly these partitions, or no record is as new as a starting time.
    """
    if limit.everywhere is None and {*limit.each} != {*places}:
        missing = sorted({*places} - {*limit.each}) or sorted({*limit.each} - {*places})
        raise ConnectorError(
            f"option {edge}Offsets has to have an offset for every partition that is read, and {missing[0][0]}-{missing[0][1]} is "
            f"{'missing' if missing[0] in places else 'not one of them'}",
            "-2 is for the earliest, -1 for the latest offset",
        )
    wanted = {place: limit.each.get(place, limit.everywhere) for place in places}
    to_ask = {place: number for place, number in wanted.items() if number is not None and (limit.is_time or number < 0)}
    found = list_offsets(cluster, to_ask, options.isolation) if to_ask else {}
    if limit.is_time and (late := [place for place, offset in found.items() if offset < 0]):
        if edge == "starting" and options.is_strict_about_time:
            raise ConnectorError(
                f"No offset matched from request: {late[0][0]}-{late[0][1]} has no record at or after {wanted[late[0]]}",
                "startingOffsetsByTimestampStrategy=latest begins at the end there",
            )
        found |= list_offsets(cluster, dict.fromkeys(late, LATEST), options.isolation)
    return {place: found[place] if place in found else int(number or 0) for place, number in wanted.items()}


def earliest(cluster: BlockingCluster, options: ConnectorOptions, places: list[TopicPartition]) -> Offsets:
    return list_offsets(cluster, dict.fromkeys(places, EARLIEST), options.isolation) if places else {}


def latest(cluster: BlockingCluster, options: ConnectorOptions, places: list[TopicPartition]) -> Offsets:
    return list_offsets(cluster, dict.fromkeys(places, LATEST), options.isolation) if places else {}


def batch_ranges(cluster: BlockingCluster, options: ConnectorOptions) -> list[Range]:
    """Return the ranges that a batch reads, unsplit."""
    places = partitions_of(cluster, options)
    starts = offsets_at(cluster, options, places, options.starting, "starting")
    ends = offsets_at(cluster, options, places, options.ending, "ending")
    ids = cluster.topic_ids(name for name, _ in places)
    return [Range(*place, starts[place], ends[place], ids.get(place[0])) for place in places]
