"""Dead letters of share groups (KIP-1191): which topic may have them, and what they look like. Nothing is sent here.

A dead letter has headers that say where its record is and why it was given up. Where the group asks for copies it also has the
record's key, value and own headers, which come first: of two headers of one name, clients take the last.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.broker.share.in_flight import Run
from ottla.protocol.errors import KafkaError
from ottla.protocol.records.batch import HEADER_BYTES, iter_batches
from ottla.protocol.records.builder import build_batch
from ottla.protocol.records.record import NewRecord, Record, RecordHeaders, encode_record

REJECTED = "Offset rejected by client."
DELIVERIES_USED_UP = "Offset delivery count exceeded the threshold."
#: Dead letters of one batch. A turn of the event loop makes one batch.
RECORDS_A_BATCH_MAX = 500
INTERNAL_PREFIX = "__"


class Source(NamedTuple):
    """Where the records of some dead letters come from."""

    group_id: str
    topic: str
    partition: int


class Letter(NamedTuple):
    """A record that gets a dead letter."""

    offset: int
    delivery_count: int
    reason: str


class QueueTopic(NamedTuple):
    """A topic that a group names for its dead letters. `is_enabled`: errors.deadletterqueue.group.enable; None: there is no topic."""

    name: str
    is_enabled: bool | None
    prefix: str
    is_auto_created: bool


def letters_of(runs: Iterable[Run]) -> Iterator[Letter]:
    """In the order of their offsets."""
    for run in sorted(runs, key=lambda run: run.first):
        reason = REJECTED if run.is_rejected else DELIVERIES_USED_UP
        for offset in range(run.first, run.last + 1):
            yield Letter(offset, run.count, reason)


def why_unusable(topic: QueueTopic) -> str | None:
    """Kafka's rules for the topic, in Kafka's order; None: dead letters can be written, perhaps once the topic is created."""
    if not topic.name:
        return "the group names no dead-letter topic any more"
    if topic.name.startswith(INTERNAL_PREFIX):
        return f"{topic.name} begins with {INTERNAL_PREFIX}"
    if topic.is_enabled is False:
        return f"{topic.name} has no errors.deadletterqueue.group.enable"
    if not topic.name.startswith(topic.prefix):
        return f"{topic.name} does not begin with errors.deadletterqueue.topic.name.prefix, which is {topic.prefix}"
    if topic.is_enabled is None and not topic.is_auto_created:
        return f"{topic.name} does not exist, and errors.deadletterqueue.auto.create.topics.enable is false"
    return None


def headers(source: Source, letter: Letter) -> RecordHeaders:
    return (
        ("__dlq.errors.topic", source.topic.encode()),
        ("__dlq.errors.partition", b"%d" % source.partition),
        ("__dlq.errors.offset", b"%d" % letter.offset),
        ("__dlq.errors.group", source.group_id.encode()),
        ("__dlq.errors.delivery.count", b"%d" % letter.delivery_count),
        ("__dlq.errors.message", letter.reason.encode()),
    )


def batch_of(
    source: Source, letters: Sequence[Letter], copies: Mapping[int, Record], max_bytes: int, now_ms: int
) -> tuple[bytes, int]:
    """One batch of at most `max_bytes`, and how many of the letters it has; at least one, whatever its size."""
    rows: list[NewRecord] = []
    size = HEADER_BYTES
    for letter in letters[:RECORDS_A_BATCH_MAX]:
        copy = copies.get(letter.offset)
        row = (
            NewRecord(None, None, now_ms, headers(source, letter))
            if copy is None
            else NewRecord(copy.key, copy.value, now_ms, (*copy.headers, *headers(source, letter)))
        )
        size += len(encode_record(len(rows), 0, row.key, row.value, row.headers))
        if rows and size > max_bytes:
            break
        rows.append(row)
    return build_batch(rows), len(rows)


def copies_from(data: bytes, offsets: Sequence[int], max_bytes: int) -> tuple[dict[int, Record], int]:
    """The records with these ascending offsets in complete batches, and the offset behind the last batch (-1: there is none).

    A batch that is damaged, or that takes more than `max_bytes` in memory, gives no record.
    """
    found: dict[int, Record] = {}
    end = -1
    for batch in iter_batches(data):
        end = batch.next_offset
        index = bisect_left(offsets, batch.base_offset)
        if batch.is_control or index == len(offsets) or offsets[index] > batch.last_offset:
            continue
        wanted = frozenset(offsets[index : bisect_right(offsets, batch.last_offset)])
        try:
            found |= {row.offset: row for row in batch.iter_records(max_bytes=max_bytes) if row.offset in wanted}
        except KafkaError:
            continue
    return found, end
