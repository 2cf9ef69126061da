"""The metadata image, the immutable state of the metadata log up to one offset, and its delta: replay, the only code that changes metadata.

Recovery, standby, live traffic, snapshots and tests run these lines. A delta starts from an image, replays records in log order
and makes the next image by `apply`. A part is None until a record changes it, so that publishers can skip unchanged parts.

Immutable with shared structure (`shared_map.Map`): the controller's uncommitted image, the committed one and
the one a slow publisher still reads are then simply different objects, and losing leadership is dropping one of them.
A mutable state would have to be rebuilt from snapshot and log at that moment.

Measured on a busy 2-core machine, replication 3: replay of 10k new partitions 0.08-0.12 s with apply, of 100k in 10k
topics 0.47 s; one partition change with 100k partitions there, delta to next image, 7-14 us (a copied dict of 10k topics
alone would be 100 us); a scan of 100k partitions 14 ms; a snapshot replayed over an equal image 0.14 s, no change left.
About 0.4 KB for each partition with its share of the maps.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import Any, Protocol, TypeVar

from ottla.controller.metadata.acls import AclsDelta, AclsImage
from ottla.controller.metadata.client_quotas import ClientQuotasDelta, ClientQuotasImage
from ottla.controller.metadata.cluster import ClusterDelta, ClusterImage, ProducerIdsDelta, ProducerIdsImage
from ottla.controller.metadata.configs import ConfigsDelta, ConfigsImage
from ottla.controller.metadata.delegation_tokens import DelegationTokensDelta, DelegationTokensImage
from ottla.controller.metadata.features import FeaturesDelta, FeaturesImage
from ottla.controller.metadata.scram import ScramDelta, ScramImage
from ottla.controller.metadata.topics import TopicDelta, TopicImage, TopicsDelta, TopicsImage
from ottla.protocol.internal_topics import metadata_records as records
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.slotted import frozen
from ottla.protocol.work import Turn, Work, do_now


class ImagePart(Protocol):
    def to_records(self) -> Iterator[MetadataRecord]: ...


class PartDelta(Protocol):
    def __init__(self, image: Any) -> None: ...
    def finish_snapshot(self) -> None: ...


Part = TypeVar("Part", bound=PartDelta)
#: Replays records of one class onto one delta.
Replay = Callable[[Any], object]
#: The parts by the class of their deltas, in the order of a snapshot: features come first, because they decide how the others are read.
PARTS: Mapping[type[PartDelta], str] = {
    FeaturesDelta: "features",
    ClusterDelta: "cluster",
    TopicsDelta: "topics",
    ConfigsDelta: "configs",
    ClientQuotasDelta: "client_quotas",
    ProducerIdsDelta: "producer_ids",
    AclsDelta: "acls",
    ScramDelta: "scram",
    DelegationTokensDelta: "delegation_tokens",
}


@frozen
class MetadataImage:
    offset: int = -1  # offset of the last record in the image
    epoch: int = -1
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigsImage = field(default_factory=ConfigsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    producer_ids: ProducerIdsImage = field(default_factory=ProducerIdsImage)
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokensImage = field(default_factory=DelegationTokensImage)

    def to_records(self) -> Iterator[MetadataRecord]:
        """Yield a snapshot: records that change the empty image into this one."""
        for part in self.parts:
            yield from part.to_records()

    @property
    def parts(self) -> tuple[ImagePart, ...]:
        """The parts in the order of a snapshot."""
        return tuple(getattr(self, name) for name in PARTS.values())


EMPTY = MetadataImage()


# Records without state: NoOp, ZooKeeper migration, and the markers of metadata transactions, which loader.py handles.
WITHOUT_STATE = frozenset(
    {
        records.NoOpRecord,
        records.ZkMigrationStateRecord,
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
    }
)

#: The measured cost of decoding and replaying a record, in units of a turn's worth (`controller.metadata.loader`).
REPLAY_UNITS = 10

#: The number of records after which Python's young generations are collected. The collector counts objects made less objects
#: freed, so that it stands still while partitions are replaced one by one and the youngest generation grows without a bound:
#: after 200,000 partitions had changed their leaders it had 1.1 million objects, and its collection held the loop for 0.77 s.
#: A partition is some six objects, and 10,000 of them take 5 to 10 ms.
COLLECTION_RECORDS = 2_000


@dataclass(slots=True, eq=False, repr=False)
class MetadataDelta:
    image: MetadataImage
    features: FeaturesDelta | None = None
    cluster: ClusterDelta | None = None
    topics: TopicsDelta | None = None
    configs: ConfigsDelta | None = None
    client_quotas: ClientQuotasDelta | None = None
    producer_ids: ProducerIdsDelta | None = None
    acls: AclsDelta | None = None
    scram: ScramDelta | None = None
    delegation_tokens: DelegationTokensDelta | None = None
    _methods: dict[type[MetadataRecord], Replay] = field(default_factory=dict)

    def part(self, kind: type[Part]) -> Part:
        """Return the delta of a part, which the first record that changes it creates."""
        name = PARTS[kind]
        part: Part | None = getattr(self, name)
        if part is None:
            part = kind(getattr(self.image, name))
            setattr(self, name, part)
        return part

    def replay(self, record: MetadataRecord) -> None:
        method = self._methods.get(record.__class__)
        if method is None:
            method = self._methods[record.__class__] = REPLAY[record.__class__](self)
        method(record)

    def replay_all(self, records_in_order: Iterable[MetadataRecord]) -> None:
        for record in records_in_order:
            self.replay(record)

    def clearing_elr(self, record: records.ClearElrRecord, turn: Turn) -> Work[None]:
        """Replay in slices the only record that may change every partition."""
        return self.part(TopicsDelta).clearing_elr(record, turn)

    @classmethod
    def of_everything(cls, image: MetadataImage, turn: Turn) -> Work[MetadataDelta]:
        """Make the delta from the empty image to this one, in slices."""
        delta = cls(MetadataImage())
        topics = TopicsDelta(delta.image.topics)
        for name in sorted(image.topics.names):
            topic = image.topics.by_name(name)
            assert topic is not None
            topics.create(topic)
            if turn.spend(1 + len(topic.partitions)):
                yield None
        if topics.changed:
            delta.topics = topics
        for part in image.parts:
            if part is not image.topics:
                for record in part.to_records():
                    delta.replay(record)
                    if turn.spend(REPLAY_UNITS):
                        yield None
        return delta

    def finish_snapshot(self) -> None:
        """End the replay of a whole snapshot: everything in the image that it does not have is removed."""
        for kind in PARTS:
            self.part(kind).finish_snapshot()

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """Return the image after all replayed records; `offset` and `epoch` are those of the last record."""
        return do_now(self.applying(offset, epoch, Turn()))

    def applying(self, offset: int, epoch: int, turn: Turn) -> Work[MetadataImage]:
        """Apply in slices, because there may be many partitions. No record may be replayed meanwhile."""
        image = self.image
        if offset // COLLECTION_RECORDS != image.offset // COLLECTION_RECORDS:
            gc.collect(1)
        parts: dict[str, Any] = {}
        for name in PARTS.values():
            part: Any = getattr(self, name)
            if part is None:
                parts[name] = getattr(image, name)
            elif name == "topics":
                parts[name] = yield from part.applying(turn)
            else:
                parts[name] = part.apply()
        return MetadataImage(offset, epoch, **parts)

    @property
    def changed_topics(self) -> Mapping[bytes, TopicDelta]:
        """Return created and altered topics by id."""
        return {} if self.topics is None else self.topics.changed

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]:
        return {} if self.topics is None else self.topics.deleted


def _row(kind: type[Part], replay: Callable[[Part, Any], object]) -> Callable[[MetadataDelta], Replay]:
    return lambda delta: MethodType(replay, delta.part(kind))


def _remove_topic(delta: MetadataDelta) -> Replay:
    topics, configs = delta.part(TopicsDelta), delta.part(ConfigsDelta)
    return lambda record: configs.delete_topic(topics.replay_remove_topic(record))


def _without_state(delta: MetadataDelta) -> Replay:
    return lambda record: None


#: The replay function of each record type. An unknown type stops the node, because its change would be lost.
REPLAY: dict[type[MetadataRecord], Callable[[MetadataDelta], Replay]] = {
    records.RegisterBrokerRecord: _row(ClusterDelta, ClusterDelta.replay_register_broker),
    records.UnregisterBrokerRecord: _row(ClusterDelta, ClusterDelta.replay_unregister_broker),
    records.FenceBrokerRecord: _row(ClusterDelta, ClusterDelta.replay_fence_broker),
    records.UnfenceBrokerRecord: _row(ClusterDelta, ClusterDelta.replay_unfence_broker),
    records.BrokerRegistrationChangeRecord: _row(ClusterDelta, ClusterDelta.replay_broker_registration_change),
    records.RegisterControllerRecord: _row(ClusterDelta, ClusterDelta.replay_register_controller),
    records.UnregisterControllerRecord: _row(ClusterDelta, ClusterDelta.replay_unregister_controller),
    records.TopicRecord: _row(TopicsDelta, TopicsDelta.replay_topic),
    records.PartitionRecord: _row(TopicsDelta, TopicsDelta.replay_partition),
    records.PartitionChangeRecord: _row(TopicsDelta, TopicsDelta.replay_partition_change),
    records.ClearElrRecord: _row(TopicsDelta, TopicsDelta.replay_clear_elr),
    records.RemoveTopicRecord: _remove_topic,
    records.ConfigRecord: _row(ConfigsDelta, ConfigsDelta.replay_config),
    records.FeatureLevelRecord: _row(FeaturesDelta, FeaturesDelta.replay_feature_level),
    records.ClientQuotaRecord: _row(ClientQuotasDelta, ClientQuotasDelta.replay_client_quota),
    records.ProducerIdsRecord: _row(ProducerIdsDelta, ProducerIdsDelta.replay_producer_ids),
    records.AccessControlEntryRecord: _row(AclsDelta, AclsDelta.replay_access_control_entry),
    records.RemoveAccessControlEntryRecord: _row(AclsDelta, AclsDelta.replay_remove_access_control_entry),
    records.UserScramCredentialRecord: _row(ScramDelta, ScramDelta.replay_user_scram_credential),
    records.RemoveUserScramCredentialRecord: _row(ScramDelta, ScramDelta.replay_remove_user_scram_credential),
    records.DelegationTokenRecord: _row(DelegationTokensDelta, DelegationTokensDelta.replay_delegation_token),
    records.RemoveDelegationTokenRecord: _row(
        DelegationTokensDelta, DelegationTokensDelta.replay_remove_delegation_token
    ),
    **dict.fromkeys(WITHOUT_STATE, _without_state),
}
