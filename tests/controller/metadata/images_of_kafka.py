"""Record values, and the image that comes of them, as they are compared with Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, MetadataDelta
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, decode_record

#: A line with a log's record values in hex, then a line with those of Kafka's snapshot of it; written by tests/compat/images.py.
RECORDED = Path(__file__).parent / "data" / "images_of_kafka.txt"

RECORDED_LOGS = 25


def recorded(number: int) -> tuple[list[bytes], list[bytes]]:
    """A log's values, and those of Kafka's snapshot."""
    lines = RECORDED.read_text().splitlines()[2 * number : 2 * number + 2]
    log, snapshot = ([bytes.fromhex(word) for word in line.split()] for line in lines)
    return log, snapshot


def values_of(log: Iterable[Any]) -> list[bytes]:
    """Each record in the version that the metadata.version before it has."""
    values, level = [], 0
    for record in log:
        values += encode_metadata([record], level)
        if isinstance(record, FeatureLevelRecord) and record.name == "metadata.version":
            level = record.feature_level
    return values


def image_of(values: Iterable[bytes]) -> list[bytes]:
    """The snapshot of our image after these records."""
    delta = MetadataDelta(EMPTY)
    delta.replay_all(decode_record(value)[0] for value in values)
    image = delta.apply(1, 1)
    return encode_metadata(image.to_records(), image.features.metadata_version)


def in_one_order(values: Sequence[bytes]) -> list[str]:
    """Both snapshots have the order of their maps."""
    return sorted(str(decode_record(value)) for value in values)
