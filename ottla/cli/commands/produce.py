"""The command `ottla produce TOPIC`: records from standard input or a file, one per line, to a topic."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, connect, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.lines import read_lines
from ottla.cli.output import note
from ottla.cli.shared_options import Compression
from ottla.client.failures import counted
from ottla.client.producer import ClusterProducer
from ottla.client.values import Incoming, from_line
from ottla.protocol.errors import ErrorCode
from ottla.protocol.records.compression import CODEC_IDS
from ottla.protocol.records.record import NewRecord
from ottla.server.clock import Clock

app = App("produce", "Write records to a topic, one per line of standard input.")

main = partial(run, app)

#: Up to this many ranges of lines are printed; if there are more, one range has them all.
RANGES_MAX = 5


@app.default
async def produce(
    topic: str,
    /,
    *,
    input: Annotated[
        Literal["text", "json"],
        Parameter(name=("--input", "-i"), help="Lines as they are, or what `consume -o json` prints."),
    ] = "text",
    file: Annotated[str, Parameter(name=("--file", "-f"), help="Read this file instead of standard input.")] = "-",
    key: Annotated[str | None, Parameter(name=("--key", "-k"), help="The key of every text record.")] = None,
    key_separator: Annotated[str | None, Parameter(help="What divides key and value in a text line.")] = None,
    header: Annotated[list[str] | None, Parameter(name=("--header", "-H"), help="NAME=VALUE.")] = None,
    partition: Annotated[
        int | None, Parameter(name=("--partition", "-p"), help="Instead of the one the key says.")
    ] = None,
    compression: Compression = "none",
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Write records to a topic and wait until all in-sync replicas have them.

    Text lines become values; with --key-separator, what stands before it is the key. In JSON, partition, timestamp,
    key, value and headers of each record can be given. Empty text lines are empty values.
    """
    if key is not None and key_separator is not None:
        raise CommandFailed("--key and --key-separator exclude each other", None, USAGE)
    headers = tuple(_header(item) for item in header or [])

    def parse(line: bytes, clock: Clock) -> Incoming:
        if input == "json":
            return from_line(line.decode(), clock.wall_ms())
        return Incoming(_text_record(line, key, key_separator, clock.wall_ms()), None)

    # The time limit is for each request to the cluster, not for reading the input.
    async with connect(connection, limited=False) as cluster:
        producer = ClusterProducer(cluster, topic, compression=CODEC_IDS[compression], notify=note)
        async with cluster.limit():
            is_new = (await cluster.metadata([topic])).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await producer.start()
        if is_new:
            note(f"topic {topic} did not exist: the broker has created it (auto.create.topics.enable)")
        number = 0
        try:
            async for lines in read_lines(_open(file)):
                for line in lines:
                    number += 1
                    try:
                        record, wanted = parse(line, cluster.world.clock)
                    except ValueError as fault:
                        async with cluster.limit():
                            await producer.flush()
                        raise _bad_line(file, number, fault) from None
                    if headers:
                        record = record._replace(headers=(*record.headers, *headers))
                    async with cluster.limit():
                        await producer.send(record, wanted if partition is None else partition)
                async with cluster.limit():
                    await producer.flush()
        except BaseException:  # also after an interrupt: the user's next command depends on what has been written
            note(outcome(topic, producer.acknowledged, producer.unacknowledged, producer.sent))
            raise
    note(outcome(topic, producer.acknowledged, [], producer.sent))


def outcome(topic: str, acknowledged: int, unacknowledged: Sequence[int], sent: int) -> str:
    """Return a text with the number of acknowledged records and the lines to repeat: those of the lines 1 to `sent` that are in
    `unacknowledged`, and all lines after `sent`.
    """
    text = f"{counted(acknowledged, 'record')} acknowledged in topic {topic}"
    if not unacknowledged:
        return text
    ranges: list[list[int]] = []
    for line in unacknowledged:
        if ranges and ranges[-1][1] == line - 1:
            ranges[-1][1] = line
        else:
            ranges.append([line, line])
    shown = ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in ranges[:RANGES_MAX])
    if len(ranges) > RANGES_MAX:
        shown = f"{ranges[0][0]}-{ranges[-1][1]}, some of which are acknowledged"
    return f"{text}; repeat line {shown}, which may have been written, and all after line {sent}"


def _open(path: str) -> int:
    if path == "-":
        return sys.stdin.fileno()
    try:
        return os.open(path, os.O_RDONLY)
    except OSError as fault:
        raise CommandFailed(f"cannot read {path}: {fault.strerror}", None, USAGE) from None


def _bad_line(path: str, number: int, fault: ValueError) -> CommandFailed:
    where = "standard input" if path == "-" else path
    return CommandFailed(f"{where}, line {number}: {fault}")


def _text_record(line: bytes, key: str | None, separator: str | None, now_ms: int) -> NewRecord:
    if separator is not None:
        found, divider, value = line.partition(separator.encode())
        if not divider:
            raise ValueError(f"no key separator {separator!r} in it")
        return NewRecord(found, value, now_ms)
    return NewRecord(None if key is None else key.encode(), line, now_ms)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise CommandFailed(f"header {text!r} is not NAME=VALUE", None, USAGE)
    return name, value.encode()
