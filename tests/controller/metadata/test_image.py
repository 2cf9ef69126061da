"""The image is a function of the log: a snapshot of it has the same content after any records, and so does the index
beside it.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, REPLAY, WITHOUT_STATE, MetadataDelta, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.protocol.internal_topics import metadata_records as records
from ottla.protocol.internal_topics.metadata_records import RECORDS, decode_record
from ottla.protocol.work import Turn, do_now
from tests.controller.images import same_content
from tests.controller.metadata.images_of_kafka import RECORDED_LOGS, image_of, in_one_order, recorded
from tests.controller.metadata.random_logs import logs
from tests.effort import examples


def test_every_record_of_the_log_is_replayed() -> None:
    assert set(RECORDS.values()) == set(REPLAY) | WITHOUT_STATE


def over(image: MetadataImage, log: list[Any]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(log)
    return delta.apply(1, 1)


def snapshot(image: MetadataImage) -> list[Any]:
    """Return the records of the image's snapshot, written as bytes and read back."""
    values = encode_metadata(image.to_records(), image.features.metadata_version)
    return [decode_record(value)[0] for value in values]


def contents(index: ClusterIndex) -> dict[str, Any]:
    """Return the contents without their order, and without brokers that have no partitions."""
    return {
        "isr": {broker: set(members) for broker, members in index._isr.items() if members},
        "elr": {broker: set(members) for broker, members in index._elr.items() if members},
        "leads": {broker: set(members) for broker, members in index._leads.items() if members},
        "waits for": {broker: set(members) for broker, members in index._waits_for.items() if members},
        "leaderless": {broker: set(members) for broker, members in index._leaderless_of.items() if members},
        "names": {name: set(members) for name, members in index._colliding.items() if members},
        "imbalanced": set(index.imbalanced),
        "reassigning": set(index.reassigning),
    }


@given(logs(), st.integers(0, 40), st.integers(0, 40))
@settings(max_examples=examples(150))
def test_snapshot_and_log_say_what_the_log_says(log: list[Any], cut: int, other: int) -> None:
    """Invariant 21 holds for any split of the log into deltas, and for any state of a node before it loads the snapshot."""
    whole = over(EMPTY, log)
    before = over(EMPTY, log[:cut])
    assert same_content(over(before, log[cut:]), whole)
    assert same_content(over(over(EMPTY, snapshot(before)), log[cut:]), whole)

    behind = over(EMPTY, log[: min(cut, other)])
    delta = MetadataDelta(behind)
    delta.replay_all(snapshot(whole))
    delta.finish_snapshot()
    assert same_content(delta.apply(1, 1), whole)

    from_nothing, replayed = do_now(MetadataDelta.of_everything(whole, Turn())), MetadataDelta(EMPTY)
    replayed.replay_all(whole.to_records())
    assert same_content(from_nothing.apply(1, 1), whole)
    assert list(from_nothing.changed_topics) == list(replayed.changed_topics)
    assert (
        [(t.id, *rest) for t, *rest in from_nothing.topics.partition_changes()]
        == [(t.id, *rest) for t, *rest in replayed.topics.partition_changes()]
        if replayed.topics
        else from_nothing.topics is None
    )

    again = MetadataDelta(whole)
    again.replay_all(snapshot(whole))
    again.finish_snapshot()
    assert not again.changed_topics and not again.deleted_topics, "a snapshot of the same is no change"


@given(logs(), st.integers(1, 7))
@settings(max_examples=examples(100))
def test_the_index_follows_every_delta(log: list[Any], step: int) -> None:
    image, index = EMPTY, ClusterIndex(EMPTY)
    for start in range(0, len(log), step):
        delta = MetadataDelta(image)
        delta.replay_all(log[start : start + step])
        image = delta.apply(start, 1)
        index.update(delta)
    assert contents(index) == contents(ClusterIndex(image))


@given(logs())
@settings(max_examples=examples(50))
def test_snapshots_of_equal_images_are_equal_record_for_record(log: list[Any]) -> None:
    """Therefore nodes can be compared by the snapshots that they write."""
    image = over(EMPTY, log)
    assert list(image.to_records()) == list(over(EMPTY, snapshot(image)).to_records())


@pytest.mark.parametrize("number", range(RECORDED_LOGS))
def test_the_image_is_the_one_that_apache_kafka_makes(number: int) -> None:
    """More of them are compared by `make compat ARGS=images`."""
    log, theirs = recorded(number)
    assert in_one_order(image_of(log)) == in_one_order(theirs)


class Batch:
    """A committed batch in the form in which the loader gets it."""

    def __init__(self, base_offset: int, batch: list[Any]) -> None:
        self.base_offset = base_offset
        self.last_offset = base_offset + len(batch) - 1
        self.epoch = 1
        self.is_control = False
        self.records = encode_metadata(batch, 30)


class RecordingPublisher:
    def __init__(self) -> None:
        self.names: list[set[str]] = []

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.names.append({topic.name for topic in image.topics})


def topic(name: str) -> records.TopicRecord:
    return records.TopicRecord(name=name, topic_id=name.encode().ljust(16))


def test_a_transaction_is_seen_as_a_whole_or_not_at_all() -> None:
    loader, publisher = MetadataLoader(), RecordingPublisher()
    loader.add_publisher(publisher)
    do_now(loader.handle_commit([Batch(0, [topic("a"), records.BeginTransactionRecord(), topic("b")])]))
    assert (publisher.names, loader.in_transaction, loader.last_offset) == ([{"a"}], True, 2)
    do_now(loader.handle_commit([Batch(3, [topic("c")])]))
    assert publisher.names == [{"a"}]
    do_now(loader.handle_commit([Batch(4, [records.EndTransactionRecord(), topic("d")])]))
    assert publisher.names[-1] == {"a", "b", "c", "d"}
    abort = records.AbortTransactionRecord(reason="why not")
    do_now(loader.handle_commit([Batch(6, [records.BeginTransactionRecord(), topic("e"), abort, topic("f")])]))
    assert publisher.names[-1] == {"a", "b", "c", "d", "f"}


def test_a_publisher_that_comes_late_gets_the_whole_image_at_once() -> None:
    loader, publisher = MetadataLoader(), RecordingPublisher()
    do_now(loader.handle_commit([Batch(0, [topic("a")]), Batch(1, [topic("b")])]))
    do_now(loader.introduce(publisher))
    assert publisher.names == [{"a", "b"}]


def test_records_of_our_own_are_taken_as_they_are_and_only_where_they_belong() -> None:
    loader = MetadataLoader()
    ours = topic("a")
    loader.appended = {(1, 0): ours, (1, 7): topic("z"), (0, 1): topic("of a former epoch")}
    do_now(loader.handle_commit([Batch(0, [topic("a"), topic("b")])]))
    assert set(loader.image.topics.names) == {"a", "b"}
    assert list(loader.appended) == [(1, 7), (0, 1)]
