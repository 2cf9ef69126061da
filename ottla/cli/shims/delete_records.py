"""kafka-delete-records: delete the records of partitions below given offsets."""

from __future__ import annotations

import sys

from ottla.cli.shims.exceptions import exception, reason
from ottla.cli.shims.json_files import place_of, read_object, repeated, rows_of
from ottla.cli.shims.tool import ToolParser, Unusable, with_cluster
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.partitions import TopicPartition


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-delete-records", "Delete the records of the given partitions below the given offsets.")
    parser.add_bootstrap()
    parser.texts("offset-json-file")
    options = parser.parse(arguments)
    parser.require(options, "offset-json-file")
    try:
        before = read_offsets(options.offset_json_file)
        return with_cluster(options, lambda cluster: delete(cluster, before))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


def read_offsets(path: str) -> dict[TopicPartition, int]:
    rows = rows_of(read_object(path), "partitions", "topic", "partition", "offset")
    places = [place_of(row) for row in rows]
    if twice := repeated(places):
        raise Unusable(f"Offset json file contains duplicate topic partitions: {','.join(twice)}")
    offsets = [row["offset"] for row in rows]
    return {place: offset for place, offset in zip(places, offsets, strict=True) if isinstance(offset, int)}


async def delete(cluster: ClusterClient, before: dict[TopicPartition, int]) -> int:
    print("Executing records delete operation")
    print("Records delete operation completed:")
    for (name, index), offset in sorted(before.items()):
        try:
            low = (await topics.delete_records(cluster, name, {index: offset}))[index]
            print(f"partition: {name}-{index}\tlow_watermark: {low}")
        except Failure as failure:
            print(f"partition: {name}-{index}\terror: {exception(failure)}")
    return 0
