"""The command `ottla consume TOPIC`: records to standard output."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from cyclopts import App, Parameter

from ottla.cli.application import CONNECTION, Connection, connect, run
from ottla.cli.client import topics
from ottla.cli.client.cluster import ClusterClient
from ottla.cli.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumer, places_of
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.record_json import to_line
from ottla.protocol.records import Record

app = App(name="consume", version_flags=[], help="Read records of a topic.")

main = partial(run, app)


@app.default
async def consume(
    topic: str,
    /,
    *,
    start: Annotated[
        str,
        Parameter(
            name=["--from", "-s"],
            help="earliest, latest, an offset, -N for the last N records of each partition, or a time "
            "(2026-01-31T12:00:00Z, or @ and epoch milliseconds).",
            allow_leading_hyphen=True,
        ),
    ] = "earliest",
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="", help="Wait for more at the end.")] = False,
    max_records: Annotated[int | None, Parameter(name=["--max", "-n"], help="Stop after this many.")] = None,
    partition: Annotated[
        list[int] | None, Parameter(name=["--partition", "-p"], help="Default: all.", negative="")
    ] = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    output: Annotated[
        Literal["text", "json", "value", "hex"],
        Parameter(
            name=["--output", "-o"], help="text: key, tab, value; json: all of it, as `produce -i json` reads it."
        ),
    ] = "text",
    connection: Connection = CONNECTION,
) -> None:
    """Read what a topic holds now, partition by partition in order, and stop; or go on with --follow."""
    if max_records is not None and max_records < 1:
        raise CommandFailed(f"--max {max_records} is not above 0", None, USAGE)
    level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
    write = WRITERS[output]
    async with connect(connection, limited=not follow) as cluster:
        async with cluster.limit():
            indexes = partition or await cluster.partitions(topic)
            ends = await topics.list_offsets(cluster, topic, topics.LATEST, indexes, level)
            positions = await _positions(cluster, topic, start, ends)
        until = None if follow else places_of(topic, ends)
        consumer = Consumer(cluster, places_of(topic, positions), until, isolation_level=level)
        left = max_records if max_records is not None else sys.maxsize
        async for _, index, records in consumer.fetch():
            for record in records[:left]:
                write(topic, index, record)
            sys.stdout.flush()
            left -= len(records)
            if left <= 0:
                return


async def _positions(cluster: ClusterClient, topic: str, start: str, ends: dict[int, int]) -> dict[int, int]:
    """Return the start offset of each partition; it is never before the log start offset."""
    if start == "latest":
        return dict(ends)
    first = await topics.list_offsets(cluster, topic, topics.EARLIEST, ends)
    if start == "earliest":
        return first
    if start.lstrip("-").isdecimal():
        number = int(start)
        if start.startswith("-"):
            return {index: max(first[index], end + number) for index, end in ends.items()}
        return {index: max(first[index], min(number, end)) for index, end in ends.items()}
    return await topics.offsets_since(cluster, topic, "--from", start, ends)


def _write_text(_topic: str, _partition: int, record: Record) -> None:
    _write_line((record.key or b"") + b"\t" + (record.value or b""))


def _write_value(_topic: str, _partition: int, record: Record) -> None:
    _write_line(record.value or b"")


def _write_hex(_topic: str, _partition: int, record: Record) -> None:
    key = "-" if record.key is None else record.key.hex()
    _write_line(f"{key}\t{'-' if record.value is None else record.value.hex()}".encode())


def _write_json(topic: str, partition: int, record: Record) -> None:
    _write_line(to_line(topic, partition, record).encode("utf-8", "surrogatepass"))


def _write_line(line: bytes) -> None:
    sys.stdout.buffer.write(line + b"\n")


WRITERS: dict[str, Callable[[str, int, Record], None]] = {
    "text": _write_text,
    "json": _write_json,
    "value": _write_value,
    "hex": _write_hex,
}
