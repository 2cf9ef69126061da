"""The first producer id that is not yet allocated to a broker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.protocol.internal_topics.metadata_records import MetadataRecord, ProducerIdsRecord


@dataclass(frozen=True, slots=True)
class ProducerIdsImage:
    next_producer_id: int = -1  # -1: no block has been allocated

    def to_records(self) -> Iterator[MetadataRecord]:
        if self.next_producer_id >= 0:
            yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id)


class ProducerIdsDelta:
    __slots__ = ("image", "next_producer_id")

    def __init__(self, image: ProducerIdsImage) -> None:
        self.image = image
        self.next_producer_id = image.next_producer_id

    def replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def finish_snapshot(self) -> None:
        """Does nothing: a snapshot older than the image is never loaded."""

    def apply(self) -> ProducerIdsImage:
        return ProducerIdsImage(self.next_producer_id)
