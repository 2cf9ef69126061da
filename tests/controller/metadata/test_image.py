"""The image as a function of the log: whatever the records, a snapshot of it says the same, and so does the index beside it."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.decisions.index import ClusterIndex
from ottla.controller.metadata.delta import REPLAY, WITHOUT_STATE, MetadataDelta
from ottla.controller.metadata.encoding import encode_metadata
from ottla.controller.metadata.image import EMPTY, MetadataImage
from ottla.controller.metadata.loader import MetadataLoader
from ottla.protocol.internal_topics import metadata_records as records
from ottla.protocol.internal_topics.metadata_records import RECORDS, decode_record
from ottla.protocol.work import Turn, do_now
from tests.controller.images import same_content

NAMES = ["a", "b.c", "b_c", "d"]
NODES = st.integers(1, 4)
NODE_LISTS = st.lists(NODES, min_size=1, max_size=4, unique=True)
IDS = st.integers(1, 6).map(lambda number: bytes(15) + bytes((number,)))


def test_every_record_of_the_log_is_replayed() -> None:
    assert set(RECORDS.values()) == set(REPLAY) | WITHOUT_STATE


class Log:
    """Random records that could stand in a log: what they refer to exists."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.records: list[Any] = []
        self.topics: dict[bytes, tuple[str, int]] = {}
        self.brokers: dict[int, int] = {}
        self.epoch = 0

    def step(self) -> None:
        self.draw(st.sampled_from(STEPS))(self)

    def add(self, record: Any) -> None:
        self.records.append(record)

    def topic(self) -> None:
        name = self.draw(st.sampled_from(NAMES))
        if any(taken == name for taken, _ in self.topics.values()):
            return
        self.epoch += 1
        topic_id = self.epoch.to_bytes(16, "big")
        self.topics[topic_id] = (name, 0)
        self.add(records.TopicRecord(name=name, topic_id=topic_id))
        self.partition()

    def partition(self) -> None:
        if not self.topics:
            return
        topic_id = self.draw(st.sampled_from(sorted(self.topics)))
        name, count = self.topics[topic_id]
        self.topics[topic_id] = (name, count + 1)
        replicas = self.draw(NODE_LISTS)
        self.add(
            records.PartitionRecord(
                topic_id=topic_id,
                partition_id=count,
                replicas=replicas,
                isr=replicas[:1],
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
                eligible_leader_replicas=self.draw(st.none() | st.just(replicas[1:] or None)),
            )
        )

    def change(self) -> None:
        candidates = [(key, count) for key, (_, count) in sorted(self.topics.items()) if count]
        if not candidates:
            return
        topic_id, count = self.draw(st.sampled_from(candidates))
        replicas = self.draw(st.none() | NODE_LISTS)
        self.add(
            records.PartitionChangeRecord(
                topic_id=topic_id,
                partition_id=self.draw(st.integers(0, count - 1)),
                isr=self.draw(st.none() | NODE_LISTS),
                leader=self.draw(st.sampled_from([-2, -1, 1, 2])),
                replicas=replicas,
                directories=None if replicas is None else [self.draw(IDS) for _ in replicas],
                removing_replicas=self.draw(st.none() | st.just([]) | NODE_LISTS),
                adding_replicas=self.draw(st.none() | st.just([]) | NODE_LISTS),
                leader_recovery_state=self.draw(st.sampled_from([-1, 0, 1])),
                eligible_leader_replicas=self.draw(st.none() | st.just([]) | NODE_LISTS),
                last_known_elr=self.draw(st.none() | st.just([]) | NODE_LISTS),
            )
        )

    def remove_topic(self) -> None:
        if self.topics:
            topic_id = self.draw(st.sampled_from(sorted(self.topics)))
            del self.topics[topic_id]
            self.add(records.RemoveTopicRecord(topic_id=topic_id))

    def clear_elr(self) -> None:
        self.add(records.ClearElrRecord(topic_name=self.draw(st.sampled_from(["", *NAMES]))))

    def config(self) -> None:
        kind = self.draw(st.sampled_from([2, 4, 32]))
        resource = self.draw(st.sampled_from(NAMES if kind != 4 else ["", "1"]))
        value = self.draw(st.none() | st.sampled_from(["1", ""]))
        name = self.draw(st.sampled_from(["x", "y"]))
        self.add(records.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))

    def register(self) -> None:
        broker_id = self.draw(NODES)
        self.epoch += 1
        self.brokers[broker_id] = self.epoch
        self.add(
            records.RegisterBrokerRecord(
                broker_id=broker_id,
                broker_epoch=self.epoch,
                incarnation_id=self.draw(IDS),
                end_points=[records.BrokerEndpoint(name="P", host="h", port=self.draw(st.integers(0, 65535)))],
                features=[records.BrokerFeature(name="metadata.version", min_supported_version=7)],
                rack=self.draw(st.none() | st.just("r")),
                log_dirs=sorted(self.draw(st.sets(IDS, max_size=2))),
                cordoned_log_dirs=self.draw(st.none() | st.just([])),
            )
        )

    def broker_change(self) -> None:
        if not self.brokers:
            return
        broker_id = self.draw(st.sampled_from(sorted(self.brokers)))
        epoch = self.brokers[broker_id]
        what = self.draw(st.integers(0, 3))
        if what == 0:
            self.add(records.FenceBrokerRecord(id=broker_id, epoch=epoch))
        elif what == 1:
            self.add(records.UnfenceBrokerRecord(id=broker_id, epoch=epoch))
        elif what == 2:
            del self.brokers[broker_id]
            self.add(records.UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch))
        else:
            self.add(
                records.BrokerRegistrationChangeRecord(
                    broker_id=broker_id,
                    broker_epoch=epoch,
                    fenced=self.draw(st.integers(-1, 1)),
                    in_controlled_shutdown=self.draw(st.integers(0, 1)),
                    log_dirs=sorted(self.draw(st.sets(IDS, max_size=2))),
                    cordoned_log_dirs=self.draw(st.none() | st.just([])),
                )
            )

    def controller(self) -> None:
        controller_id = self.draw(NODES)
        if self.draw(st.booleans()):
            self.add(records.RegisterControllerRecord(controller_id=controller_id, incarnation_id=self.draw(IDS)))
        else:
            self.add(records.UnregisterControllerRecord(controller_id=controller_id))

    def feature(self) -> None:
        name = self.draw(st.sampled_from(["group.version", "share.version"]))
        self.add(records.FeatureLevelRecord(name=name, feature_level=self.draw(st.integers(0, 2))))

    def acl(self) -> None:
        entry_id = self.draw(IDS)
        if self.draw(st.booleans()):
            self.add(records.AccessControlEntryRecord(id=entry_id, resource_name=self.draw(st.sampled_from(NAMES))))
        else:
            self.add(records.RemoveAccessControlEntryRecord(id=entry_id))

    def quota(self) -> None:
        entity = [records.EntityData(entity_type="user", entity_name=self.draw(st.none() | st.just("u")))]
        self.add(
            records.ClientQuotaRecord(
                entity=entity, key=self.draw(st.sampled_from(["p", "c"])), value=1.5, remove=self.draw(st.booleans())
            )
        )

    def producer_ids(self) -> None:
        self.epoch += 1
        self.add(records.ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000 * self.epoch))

    def secrets(self) -> None:
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from(["u", "w"]))
            if self.draw(st.booleans()):
                self.add(records.UserScramCredentialRecord(name=name, mechanism=1, salt=b"s", iterations=4096))
            else:
                self.add(records.RemoveUserScramCredentialRecord(name=name, mechanism=1))
        else:
            token_id = self.draw(st.sampled_from(["t", "v"]))
            if self.draw(st.booleans()):
                self.add(records.DelegationTokenRecord(token_id=token_id, owner="User:a", renewers=["User:b"]))
            else:
                self.add(records.RemoveDelegationTokenRecord(token_id=token_id))


STEPS = [
    Log.topic, Log.partition, Log.change, Log.change, Log.remove_topic, Log.clear_elr, Log.config, Log.register,
    Log.broker_change, Log.controller, Log.feature, Log.acl, Log.quota, Log.producer_ids, Log.secrets,
]  # fmt: skip


@st.composite
def logs(draw: st.DrawFn) -> list[Any]:
    log = Log(draw)
    log.add(records.FeatureLevelRecord(name="metadata.version", feature_level=30))
    for _ in range(draw(st.integers(0, 40))):
        log.step()
    return log.records


def over(image: MetadataImage, log: list[Any]) -> MetadataImage:
    delta = MetadataDelta(image)
    delta.replay_all(log)
    return delta.apply(1, 1)


def snapshot(image: MetadataImage) -> list[Any]:
    """Written and read back, as bytes."""
    values = encode_metadata(image.to_records(), image.features.metadata_version)
    return [decode_record(value)[0] for value in values]


def contents(index: ClusterIndex) -> dict[str, Any]:
    """Without the order in which things were found, and without brokers that have nothing."""
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
@settings(max_examples=150, deadline=None)
def test_snapshot_and_log_say_what_the_log_says(log: list[Any], cut: int, other: int) -> None:
    """Invariant 21; however the log is cut into deltas, and whatever a node knew before it loaded the snapshot."""
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
@settings(max_examples=100, deadline=None)
def test_the_index_follows_every_delta(log: list[Any], step: int) -> None:
    image, index = EMPTY, ClusterIndex(EMPTY)
    for start in range(0, len(log), step):
        delta = MetadataDelta(image)
        delta.replay_all(log[start : start + step])
        image = delta.apply(start, 1)
        index.update(delta)
    assert contents(index) == contents(ClusterIndex(image))


@given(logs())
@settings(max_examples=50, deadline=None)
def test_snapshots_of_equal_images_are_equal_record_for_record(log: list[Any]) -> None:
    """So that nodes can be compared by what they write."""
    image = over(EMPTY, log)
    assert list(image.to_records()) == list(over(EMPTY, snapshot(image)).to_records())


class Batch:
    """A committed batch as the loader gets it."""

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
