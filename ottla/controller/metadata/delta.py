"""Replay: the only code that changes metadata. Recovery, standby, live traffic, snapshots and tests run these lines.

A delta starts from an image, replays records in log order and makes the next image by `apply`. A part is None
until a record changes it, so that publishers can skip unchanged parts.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Mapping
from types import MethodType
from typing import Any, Protocol, TypeVar

from ottla.controller.metadata.acls import AclsDelta
from ottla.controller.metadata.client_quotas import ClientQuotasDelta
from ottla.controller.metadata.cluster import ClusterDelta
from ottla.controller.metadata.configs import ConfigsDelta
from ottla.controller.metadata.delegation_tokens import DelegationTokensDelta
from ottla.controller.metadata.features import FeaturesDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.producer_ids import ProducerIdsDelta
from ottla.controller.metadata.scram import ScramDelta
from ottla.controller.metadata.topics import TopicDelta, TopicImage, TopicsDelta
from ottla.protocol.internal_topics import metadata_records as records
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.work import Turn, Work, do_now

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

#: The measured cost of decoding and replaying a record, in units of a turn's worth (`controller.metadata.publisher`).
REPLAY_UNITS = 10

#: The number of records after which Python's young generations are collected. The collector counts objects made less objects
#: freed, so that it stands still while partitions are replaced one by one and the youngest generation grows without a bound:
#: after 200,000 partitions had changed their leaders it had 1.1 million objects, and its collection held the loop for 0.77 s.
#: A partition is some six objects, and 10,000 of them take 5 to 10 ms.
COLLECTION_RECORDS = 2_000


class PartDelta(Protocol):
    def finish_snapshot(self) -> None: ...


Part = TypeVar("Part", bound=PartDelta)
#: Replays records of one class onto one delta.
Replay = Callable[[Any], object]


class MetadataDelta:
    __slots__ = (
        "_methods",
        "acls",
        "client_quotas",
        "cluster",
        "configs",
        "delegation_tokens",
        "features",
        "image",
        "producer_ids",
        "scram",
        "topics",
    )

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._methods: dict[type[MetadataRecord], Replay] = {}
        self.features: FeaturesDelta | None = None
        self.cluster: ClusterDelta | None = None
        self.topics: TopicsDelta | None = None
        self.configs: ConfigsDelta | None = None
        self.client_quotas: ClientQuotasDelta | None = None
        self.producer_ids: ProducerIdsDelta | None = None
        self.acls: AclsDelta | None = None
        self.scram: ScramDelta | None = None
        self.delegation_tokens: DelegationTokensDelta | None = None

    def replay(self, record: MetadataRecord) -> None:
        method = self._methods.get(record.__class__)
        if method is None:
            method = self._methods[record.__class__] = REPLAY[record.__class__](self)
        method(record)

    def replay_all(self, records_in_order: Iterable[MetadataRecord]) -> None:
        for record in records_in_order:
            self.replay(record)

    def clearing_elr(self, record: records.ClearElrRecord, turn: Turn) -> Work[None]:
        """Replays in slices the only record that may change every partition."""
        return _topics(self).clearing_elr(record, turn)

    @classmethod
    def of_everything(cls, image: MetadataImage, turn: Turn) -> Work[MetadataDelta]:
        """Makes the delta from the empty image to this one, in slices."""
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
        """Ends the replay of a whole snapshot: everything in the image that it does not have is removed."""
        for part in _PARTS:
            part(self).finish_snapshot()

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """Returns the image after all replayed records; `offset` and `epoch` are those of the last record."""
        return do_now(self.applying(offset, epoch, Turn()))

    def applying(self, offset: int, epoch: int, turn: Turn) -> Work[MetadataImage]:
        """Applies in slices, because there may be many partitions. No record may be replayed meanwhile."""
        image = self.image
        if offset // COLLECTION_RECORDS != image.offset // COLLECTION_RECORDS:
            gc.collect(1)
        return MetadataImage(
            offset,
            epoch,
            features=image.features if self.features is None else self.features.apply(),
            cluster=image.cluster if self.cluster is None else self.cluster.apply(),
            topics=image.topics if self.topics is None else (yield from self.topics.applying(turn)),
            configs=image.configs if self.configs is None else self.configs.apply(),
            client_quotas=image.client_quotas if self.client_quotas is None else self.client_quotas.apply(),
            producer_ids=image.producer_ids if self.producer_ids is None else self.producer_ids.apply(),
            acls=image.acls if self.acls is None else self.acls.apply(),
            scram=image.scram if self.scram is None else self.scram.apply(),
            delegation_tokens=image.delegation_tokens
            if self.delegation_tokens is None
            else self.delegation_tokens.apply(),
        )

    @property
    def changed_topics(self) -> Mapping[bytes, TopicDelta]:
        """Returns created and altered topics by id."""
        return {} if self.topics is None else self.topics.changed

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]:
        return {} if self.topics is None else self.topics.deleted


# The parts of a delta, created by the first record that changes them.


def _features(delta: MetadataDelta) -> FeaturesDelta:
    if delta.features is None:
        delta.features = FeaturesDelta(delta.image.features)
    return delta.features


def _cluster(delta: MetadataDelta) -> ClusterDelta:
    if delta.cluster is None:
        delta.cluster = ClusterDelta(delta.image.cluster)
    return delta.cluster


def _topics(delta: MetadataDelta) -> TopicsDelta:
    if delta.topics is None:
        delta.topics = TopicsDelta(delta.image.topics)
    return delta.topics


def _configs(delta: MetadataDelta) -> ConfigsDelta:
    if delta.configs is None:
        delta.configs = ConfigsDelta(delta.image.configs)
    return delta.configs


def _client_quotas(delta: MetadataDelta) -> ClientQuotasDelta:
    if delta.client_quotas is None:
        delta.client_quotas = ClientQuotasDelta(delta.image.client_quotas)
    return delta.client_quotas


def _producer_ids(delta: MetadataDelta) -> ProducerIdsDelta:
    if delta.producer_ids is None:
        delta.producer_ids = ProducerIdsDelta(delta.image.producer_ids)
    return delta.producer_ids


def _acls(delta: MetadataDelta) -> AclsDelta:
    if delta.acls is None:
        delta.acls = AclsDelta(delta.image.acls)
    return delta.acls


def _scram(delta: MetadataDelta) -> ScramDelta:
    if delta.scram is None:
        delta.scram = ScramDelta(delta.image.scram)
    return delta.scram


def _delegation_tokens(delta: MetadataDelta) -> DelegationTokensDelta:
    if delta.delegation_tokens is None:
        delta.delegation_tokens = DelegationTokensDelta(delta.image.delegation_tokens)
    return delta.delegation_tokens


_PARTS: tuple[Callable[[MetadataDelta], PartDelta], ...] = (
    _features,
    _cluster,
    _topics,
    _configs,
    _client_quotas,
    _producer_ids,
    _acls,
    _scram,
    _delegation_tokens,
)


def _row(
    part: Callable[[MetadataDelta], Part], replay: Callable[[Part, Any], object]
) -> Callable[[MetadataDelta], Replay]:
    return lambda delta: MethodType(replay, part(delta))


def _remove_topic(delta: MetadataDelta) -> Replay:
    topics, configs = _topics(delta), _configs(delta)
    return lambda record: configs.delete_topic(topics.replay_remove_topic(record))


def _without_state(delta: MetadataDelta) -> Replay:
    return lambda record: None


#: The replay function of each record type. An unknown type stops the node, because its change would be lost.
REPLAY: dict[type[MetadataRecord], Callable[[MetadataDelta], Replay]] = {
    records.RegisterBrokerRecord: _row(_cluster, ClusterDelta.replay_register_broker),
    records.UnregisterBrokerRecord: _row(_cluster, ClusterDelta.replay_unregister_broker),
    records.FenceBrokerRecord: _row(_cluster, ClusterDelta.replay_fence_broker),
    records.UnfenceBrokerRecord: _row(_cluster, ClusterDelta.replay_unfence_broker),
    records.BrokerRegistrationChangeRecord: _row(_cluster, ClusterDelta.replay_broker_registration_change),
    records.RegisterControllerRecord: _row(_cluster, ClusterDelta.replay_register_controller),
    records.UnregisterControllerRecord: _row(_cluster, ClusterDelta.replay_unregister_controller),
    records.TopicRecord: _row(_topics, TopicsDelta.replay_topic),
    records.PartitionRecord: _row(_topics, TopicsDelta.replay_partition),
    records.PartitionChangeRecord: _row(_topics, TopicsDelta.replay_partition_change),
    records.ClearElrRecord: _row(_topics, TopicsDelta.replay_clear_elr),
    records.RemoveTopicRecord: _remove_topic,
    records.ConfigRecord: _row(_configs, ConfigsDelta.replay_config),
    records.FeatureLevelRecord: _row(_features, FeaturesDelta.replay_feature_level),
    records.ClientQuotaRecord: _row(_client_quotas, ClientQuotasDelta.replay_client_quota),
    records.ProducerIdsRecord: _row(_producer_ids, ProducerIdsDelta.replay_producer_ids),
    records.AccessControlEntryRecord: _row(_acls, AclsDelta.replay_access_control_entry),
    records.RemoveAccessControlEntryRecord: _row(_acls, AclsDelta.replay_remove_access_control_entry),
    records.UserScramCredentialRecord: _row(_scram, ScramDelta.replay_user_scram_credential),
    records.RemoveUserScramCredentialRecord: _row(_scram, ScramDelta.replay_remove_user_scram_credential),
    records.DelegationTokenRecord: _row(_delegation_tokens, DelegationTokensDelta.replay_delegation_token),
    records.RemoveDelegationTokenRecord: _row(_delegation_tokens, DelegationTokensDelta.replay_remove_delegation_token),
    **dict.fromkeys(WITHOUT_STATE, _without_state),
}
