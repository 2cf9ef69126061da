"""The command `ottla consume TOPIC`: records to standard output."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Literal

from ottla.cli.app import App, Parameter
from ottla.cli.application import CONNECTION, ConnectionOptions, connect, run
from ottla.cli.errors import USAGE, CommandFailed
from ottla.cli.output import escaped_json, note
from ottla.cli.record_filter import Matches, record_filter
from ottla.cli.record_format import Plain, Write, compile_format, terminal_bytes
from ottla.cli.shared_options import REGISTRY_CONFIG_HELP, Partitions
from ottla.client import topics
from ottla.client.cluster import ClusterClient
from ottla.client.consumer import READ_COMMITTED, READ_UNCOMMITTED, Consumed, Consumer, places_of
from ottla.client.fetched import recreated_texts
from ottla.client.group_consumer import GroupConsumer
from ottla.client.partitions import TopicPartition
from ottla.client.values import check_registry, to_line
from ottla.protocol.records.record import Record

#: This many keys and values that could not be decoded are named one by one. Further ones are only counted.
FAILURES_SHOWN = 10

app = App("consume", "Read records of a topic.")

main = partial(run, app)


@app.default
async def consume(
    topic: str,
    /,
    *,
    start: Annotated[
        str,
        Parameter(
            name=("--from", "-s"),
            help="earliest, latest, an offset, -N for the last N records of each partition, or a time "
            "(2026-01-31T12:00:00Z, or @ and epoch milliseconds).",
        ),
    ] = "earliest",
    to: Annotated[str | None, Parameter(help="Stop before this offset, -N or time.")] = None,
    follow: Annotated[bool, Parameter(name=("--follow", "-f"), help="Wait for more at the end.")] = False,
    group: Annotated[
        str | None,
        Parameter(name=("--group", "-g"), help="Join this group: go on at its offsets, share partitions, and commit."),
    ] = None,
    max_records: Annotated[int | None, Parameter(name=("--max", "-n"), help="Stop after this many.")] = None,
    partition: Partitions = None,
    key: Annotated[str | None, Parameter(help="Only records whose key matches this regular expression.")] = None,
    value: Annotated[str | None, Parameter(help="Only records whose value matches this regular expression.")] = None,
    header: Annotated[
        list[str] | None,
        Parameter(name=("--header", "-H"), help="Only records with the header NAME, or NAME=REGEX."),
    ] = None,
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted",
    output: Annotated[
        Literal["text", "json", "value", "hex"],
        Parameter(
            name=("--output", "-o"),
            help="text: key, tab, value, or the value alone without keys; json: all of it, as `produce -i json` reads it.",
        ),
    ] = "text",
    form: Annotated[
        str | None,
        Parameter(
            name=("--format", "-F"),
            help="Such as '%t %p %o %k %v\\n': topic, partition, offset, key, value; %d timestamp, %h headers, %K and %V sizes; "
            "%v{hex}, %k{base64}, %d{%H:%M:%S}.",
        ),
    ] = None,
    registry: Annotated[
        str | None,
        Parameter(
            name="--registry",
            env_var="OTTLA_REGISTRY",
            help="Address of a schema registry (http://localhost:8081): its Avro, JSON and Protobuf values are shown as JSON.",
        ),
    ] = None,
    registry_config: Annotated[
        str | None,
        Parameter(help=REGISTRY_CONFIG_HELP),
    ] = None,
    connection: ConnectionOptions = CONNECTION,
) -> None:
    """Read what a topic holds now, partition by partition in order, and stop; or go on with --follow.

    With --group, --from is where partitions begin for which the group has no offset: earliest or latest.
    """
    if max_records is not None and max_records < 1:
        raise CommandFailed(f"--max {max_records} is not above 0", None, USAGE)
    if to is not None and follow:
        raise CommandFailed("--to and --follow exclude each other", None, USAGE)
    if group is not None and (partition or to or start not in ("earliest", "latest")):
        raise CommandFailed(
            "a group has its own offsets and partitions",
            "--group excludes --partition, --to and a --from in between",
            USAGE,
        )
    level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
    plain = terminal_bytes if sys.stdout.isatty() else bytes
    write = WRITERS[output](plain) if form is None else compile_format(form, plain)
    matches = record_filter(key, value, header or [])
    if registry is not None:
        check_registry(registry)
    # The time limit applies to the time without records: a large topic may take longer.
    async with connect(connection, limited=False) as cluster, AsyncExitStack() as stack:
        if group is None:
            consumer = await _consumer(cluster, topic, partition, start, to, follow, level)
            await _print(_read(_noting(consumer), registry, registry_config), write, matches, max_records)
            return
        async with cluster.limit():
            ends = await topics.list_offsets(cluster, topic, topics.LATEST, None, level)
        reset = topics.EARLIEST if start == "earliest" else topics.LATEST
        member = await stack.enter_async_context(
            GroupConsumer(cluster, group, [topic], isolation_level=level, reset=reset)
        )
        until = None if follow else places_of(topic, ends)
        fetched = _noting(member.consumer, member.fetch(until))
        stopped = await _print(_read(fetched, registry, registry_config), write, matches, max_records)
        if stopped is not None:
            member.processed(*stopped)


async def _noting(consumer: Consumer, consumed: AsyncIterator[Consumed] | None = None) -> AsyncIterator[Consumed]:
    """Yield what the consumer fetches. If a topic was created again, say so on standard error before its first record."""
    async for each in consumer.fetch() if consumed is None else consumed:
        for text in recreated_texts(consumer.recreated):
            note(text)
        yield each


async def _read(consumed: AsyncIterator[Consumed], registry: str | None, config: str | None) -> AsyncIterator[Consumed]:
    """Yield the records. Values that a schema of the registry decodes are replaced by JSON."""
    if registry is None:
        async for each in consumed:
            yield each
        return
    # Imported late: the registry's client needs HTTP and TLS.
    from ottla.registry.client import RegistryClient, RegistryFailed
    from ottla.registry.decoder import Decoder

    try:
        decoding = Decoder(RegistryClient.of(registry, config))
    except (OSError, ValueError) as fault:
        raise CommandFailed(f"--registry-config: {fault}", None, USAGE) from None
    failed = 0
    try:
        async for topic, index, records, is_append_time in consumed:
            async for some in decoding.records(records):
                for record, reasons in some:
                    for reason in reasons:
                        failed += 1
                        if failed <= FAILURES_SHOWN:
                            note(f"{topic}-{index} offset {record.offset} is shown as its bytes: {reason}")
                yield Consumed(topic, index, [record for record, _ in some], is_append_time)
    except RegistryFailed as fault:
        raise CommandFailed(fault.message, "without --registry the bytes are shown as they are") from None
    finally:
        await decoding.close()
        if failed > FAILURES_SHOWN:
            note(f"{failed} keys and values were shown as their bytes")


async def _consumer(
    cluster: ClusterClient,
    topic: str,
    partitions: Sequence[int] | None,
    start: str,
    to: str | None,
    follow: bool,
    level: int,
) -> Consumer:
    async with cluster.limit():
        ends = await topics.list_offsets(cluster, topic, topics.LATEST, partitions, level)
        first = await topics.list_offsets(cluster, topic, topics.EARLIEST, ends)
        positions = await topics.offsets_at(cluster, topic, "--from", start, first, ends)
        if to is not None:
            ends = await topics.offsets_at(cluster, topic, "--to", to, first, ends)
    if start == "latest" and not follow:
        note("`--from latest` without --follow reads nothing: records that come later are shown with -f")
    # With --follow retention may delete offsets before they are read, and the user wants the records after them nevertheless.
    reset = topics.EARLIEST if follow else None
    until = None if follow else places_of(topic, ends)
    return Consumer(cluster, places_of(topic, positions), until, isolation_level=level, reset=reset)


async def _print(
    consumed: AsyncIterator[Consumed], write: Write, matches: Matches, max_records: int | None
) -> tuple[TopicPartition, int] | None:
    """Print the records that match. If `max_records` have been printed, return the partition and its next offset."""
    left = sys.maxsize if max_records is None else max_records
    out = sys.stdout.buffer
    async for topic, index, records, _ in consumed:
        for record in filter(matches, records):
            out.write(write(topic, index, record))
            left -= 1
            if not left:
                out.flush()
                return (topic, index), record.offset + 1
        out.flush()
    return None


def _text_writer(plain: Plain) -> Write:
    """Write the key, a tab and the value. As long as no record has a key, write the value alone."""
    keys = False

    def write(topic: str, partition: int, record: Record) -> bytes:
        nonlocal keys
        keys = keys or record.key is not None
        return (plain(record.key or b"") + b"\t" if keys else b"") + plain(record.value or b"") + b"\n"

    return write


def _value_writer(plain: Plain) -> Write:
    return lambda topic, partition, record: plain(record.value or b"") + b"\n"


def _hex(topic: str, partition: int, record: Record) -> bytes:
    key, value = ("-" if data is None else data.hex() for data in (record.key, record.value))
    return f"{key}\t{value}\n".encode()


def _json(topic: str, partition: int, record: Record) -> bytes:
    return escaped_json(to_line(topic, partition, record)).encode("utf-8", "surrogatepass") + b"\n"


WRITERS: dict[str, Callable[[Plain], Write]] = {
    "text": _text_writer,
    "json": lambda _: _json,
    "value": _value_writer,
    "hex": lambda _: _hex,
}
