"""Record values, and the image that they make, for the comparison with Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, MetadataDelta
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, decode_record

#: The first line of a pair has the record values of a log in hex, the second those of Kafka's snapshot of it.
#: tests/compat/images.py writes the file.
RECORDED = Path(__file__).parent / "data" / "images_of_kafka.txt"

RECORDED_LOGS = 25


def recorded(number: int) -> tuple[list[bytes], list[bytes]]:
    """Return the values of a log, and those of Kafka's snapshot."""
    lines = RECORDED.read_text().splitlines()[2 * number : 2 * number + 2]
    log, snapshot = ([bytes.fromhex(word) for word in line.split()] for line in lines)
    return log, snapshot


def values_of(log: Iterable[Any]) -> list[bytes]:
    """Return the values of the log, each record in the version of the metadata.version before it."""
    values, level = [], 0
    for record in log:
        values += encode_metadata([record], level)
        if isinstance(record, FeatureLevelRecord) and record.name == "metadata.version":
            level = record.feature_level
    return values


def image_of(values: Iterable[bytes]) -> list[bytes]:
    """Return the snapshot of Ottla's image after these records."""
    delta = MetadataDelta(EMPTY)
    delta.replay_all(decode_record(value)[0] for value in values)
    image = delta.apply(1, 1)
    return encode_metadata(image.to_records(), image.features.metadata_version)


def in_one_order(values: Sequence[bytes]) -> list[str]:
    """Return the values in a fixed order, because each snapshot has the order of its own maps."""
    return sorted(str(decode_record(value)) for value in values)
