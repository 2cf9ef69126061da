"""A former image is freed in turns: 200,000 partitions freed at once hold the event loop for 90 ms."""

from __future__ import annotations

import pytest

from ottla.controller.metadata import publisher
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.metadata.partitions import PartitionRegistration
from ottla.protocol.internal_topics.metadata_records import FeatureLevelRecord, PartitionRecord, TopicRecord

TOPICS, PARTITIONS, UNITS = 6, 300, 100


class Replicas(tuple[int, ...]):
    """Of a partition; counts those that are freed."""

    freed = 0

    def __del__(self) -> None:
        Replicas.freed += 1


def topic_id(number: int) -> bytes:
    return bytes(15) + bytes((number + 1,))


class Image:
    """A publisher that keeps the newest image, as the broker's cache does."""

    def __init__(self) -> None:
        self.image = MetadataImage()

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image


class Reader:
    """A snapshot in which the first topic is gone and every other partition has another leader epoch."""

    offset, epoch = 100, 2

    def values(self) -> list[bytes]:
        written = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
        for number in range(1, TOPICS):
            written.append(TopicRecord(name=f"t{number}", topic_id=topic_id(number)))
            written += [
                PartitionRecord(partition_id=index, topic_id=topic_id(number), replicas=[1], isr=[1], leader_epoch=7)
                for index in range(PARTITIONS)
            ]
        return encode_metadata(written, 30)


def test_the_image_that_a_snapshot_replaced_is_freed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publisher, "UNITS_A_TURN", UNITS)
    loader, cache = MetadataLoader(), Image()
    before = MetadataDelta(loader.image)
    for number in range(TOPICS):
        before.replay(TopicRecord(name=f"t{number}", topic_id=topic_id(number)))
        for index in range(PARTITIONS):
            registration = PartitionRegistration(Replicas((1,)), (1,))
            before.changed_topics[topic_id(number)].replace(index, registration)
            del registration
    loader.image = before.apply(1, 1)
    loader.last_offset = 1
    del before
    loader.add_publisher(cache)
    Replicas.freed = 0
    freed, turns = [], loader.handle_snapshot(Reader())
    for _ in turns:
        freed.append(Replicas.freed - sum(freed))
    freed.append(Replicas.freed - sum(freed))
    assert sum(freed) == TOPICS * PARTITIONS
    assert max(freed) <= UNITS
    assert len(cache.image.topics) == TOPICS - 1 and loader.last_offset == 99
