"""A former image is freed in turns: 200,000 partitions freed at once hold the event loop for 90 ms. The number of objects that
Python's garbage collector has to look at stays bounded while partitions are replaced.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from ottla.controller.metadata import image as metadata_image
from ottla.controller.metadata import loader as metadata_loader
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import COLLECTION_RECORDS, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.internal_topics.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.controller.test_runtime import Batch

TOPICS, PARTITIONS, UNITS = 6, 300, 100


class Replicas(tuple[int, ...]):
    """The replicas of a partition. They count those that are freed."""

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


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> MetadataLoader:
    """Return a loader with the image of all topics, and a publisher that keeps the image as a broker's cache does."""
    monkeypatch.setattr(metadata_loader, "UNITS_A_TURN", UNITS)
    loader = MetadataLoader()
    before = MetadataDelta(loader.image)
    for number in range(TOPICS):
        before.replay(TopicRecord(name=f"t{number}", topic_id=topic_id(number)))
        for index in range(PARTITIONS):
            registration = PartitionRegistration(Replicas((1,)), (1,))
            before.changed_topics[topic_id(number)].replace(index, registration)
            del registration
    loader.image = before.apply(1, 1)
    loader.last_offset = 1
    loader.add_publisher(Image())
    return loader


def freed_in(turns: Iterator[None]) -> list[int]:
    Replicas.freed = 0
    freed = []
    for _ in turns:
        freed.append(Replicas.freed - sum(freed))
    return [*freed, Replicas.freed - sum(freed)]


def test_the_image_that_a_snapshot_replaced_is_freed_in_turns(loader: MetadataLoader) -> None:
    freed = freed_in(loader.handle_snapshot(Reader()))
    assert sum(freed) == TOPICS * PARTITIONS
    assert max(freed) <= UNITS
    assert len(loader.image.topics) == TOPICS - 1 and loader.last_offset == 99


def test_deleted_topics_are_freed_in_turns(loader: MetadataLoader) -> None:
    removals = [RemoveTopicRecord(topic_id=topic_id(number)) for number in range(TOPICS)]
    freed = freed_in(loader.handle_commit([Batch(2, encode_metadata(removals, 30), 1)]))
    assert sum(freed) == TOPICS * PARTITIONS
    assert max(freed) <= UNITS
    assert not len(loader.image.topics)


def test_partitions_that_are_replaced_one_by_one_do_not_gather_in_the_young_generations(
    loader: MetadataLoader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector counts created objects minus freed ones, so it never collects by itself here."""
    assert COLLECTION_RECORDS >= 1_000, "a collection has a price of its own"
    monkeypatch.setattr(metadata_image, "COLLECTION_RECORDS", UNITS)
    gc.collect()
    gc.disable()
    try:
        most, offset = 0, 1
        for number in range(TOPICS):
            for index in range(PARTITIONS):
                change = MetadataDelta(loader.image)
                change.replay(PartitionChangeRecord(partition_id=index, topic_id=topic_id(number), leader=1))
                offset += 1
                loader.image = change.apply(offset, 1)
                del change
            most = max(most, len(gc.get_objects(0)) + len(gc.get_objects(1)))
    finally:
        gc.enable()
    assert most < 10 * UNITS, "of a partition's six objects, so many times as there are records between two collections"
