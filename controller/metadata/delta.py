"""Replay: the only code that changes metadata. Recovery, standby, live traffic, snapshots and tests run these lines.

A delta starts from an image, replays records in log order and gives the next image by `apply`. The part of a noun is
None as long as no record has touched it, so that publishers can tell at a glance what there is to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from controller.metadata.acls import AclsDelta
from controller.metadata.client_quotas import ClientQuotasDelta
from controller.metadata.cluster import ClusterDelta
from controller.metadata.configs import ConfigsDelta
from controller.metadata.delegation_tokens import DelegationTokensDelta
from controller.metadata.features import FeaturesDelta
from controller.metadata.image import NOUNS, MetadataImage
from controller.metadata.producer_ids import ProducerIdsDelta
from controller.metadata.scram import ScramDelta
from controller.metadata.topics import TopicDelta, TopicImage, TopicsDelta
from protocol import metadata_records as records
from protocol.work import Turn, Work, do_now

# Record -> (part of the image, method of its delta). A record that is not here stops the node: it would be lost.
REPLAY: dict[type[Any], tuple[str, str]] = {
    records.RegisterBrokerRecord: ("cluster", "replay_register_broker"),
    records.UnregisterBrokerRecord: ("cluster", "replay_unregister_broker"),
    records.FenceBrokerRecord: ("cluster", "replay_fence_broker"),
    records.UnfenceBrokerRecord: ("cluster", "replay_unfence_broker"),
    records.BrokerRegistrationChangeRecord: ("cluster", "replay_broker_registration_change"),
    records.RegisterControllerRecord: ("cluster", "replay_register_controller"),
    records.UnregisterControllerRecord: ("cluster", "replay_unregister_controller"),
    records.TopicRecord: ("topics", "replay_topic"),
    records.PartitionRecord: ("topics", "replay_partition"),
    records.PartitionChangeRecord: ("topics", "replay_partition_change"),
    records.ClearElrRecord: ("topics", "replay_clear_elr"),
    records.RemoveTopicRecord: ("topics", "replay_remove_topic"),
    records.ConfigRecord: ("configs", "replay_config"),
    records.FeatureLevelRecord: ("features", "replay_feature_level"),
    records.ClientQuotaRecord: ("client_quotas", "replay_client_quota"),
    records.ProducerIdsRecord: ("producer_ids", "replay_producer_ids"),
    records.AccessControlEntryRecord: ("acls", "replay_access_control_entry"),
    records.RemoveAccessControlEntryRecord: ("acls", "replay_remove_access_control_entry"),
    records.UserScramCredentialRecord: ("scram", "replay_user_scram_credential"),
    records.RemoveUserScramCredentialRecord: ("scram", "replay_remove_user_scram_credential"),
    records.DelegationTokenRecord: ("delegation_tokens", "replay_delegation_token"),
    records.RemoveDelegationTokenRecord: ("delegation_tokens", "replay_remove_delegation_token"),
}

# No state comes of these: a sign of life, what is left of ZooKeeper, and the brackets that loader.py resolves.
WITHOUT_STATE = frozenset(
    {
        records.NoOpRecord,
        records.ZkMigrationStateRecord,
        records.BeginTransactionRecord,
        records.EndTransactionRecord,
        records.AbortTransactionRecord,
    }
)

#: Units of a turn's worth (`controller.metadata.publisher`), as measured: decoding and replaying a record.
REPLAY_UNITS = 10

_DELTAS: dict[str, type[Any]] = {
    "features": FeaturesDelta,
    "cluster": ClusterDelta,
    "topics": TopicsDelta,
    "configs": ConfigsDelta,
    "client_quotas": ClientQuotasDelta,
    "producer_ids": ProducerIdsDelta,
    "acls": AclsDelta,
    "scram": ScramDelta,
    "delegation_tokens": DelegationTokensDelta,
}
assert tuple(_DELTAS) == NOUNS


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

    features: FeaturesDelta | None
    cluster: ClusterDelta | None
    topics: TopicsDelta | None
    configs: ConfigsDelta | None
    client_quotas: ClientQuotasDelta | None
    producer_ids: ProducerIdsDelta | None
    acls: AclsDelta | None
    scram: ScramDelta | None
    delegation_tokens: DelegationTokensDelta | None

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._methods: dict[type[Any], Callable[[Any], Any]] = {}
        for noun in NOUNS:
            setattr(self, noun, None)

    def replay(self, record: Any) -> None:
        method = self._methods.get(record.__class__)
        if method is None:
            method = self._method(record.__class__)
        method(record)

    def replay_all(self, records_in_order: Iterable[Any]) -> None:
        for record in records_in_order:
            self.replay(record)

    @classmethod
    def of_everything(cls, image: MetadataImage, turn: Turn) -> Work[MetadataDelta]:
        """From nothing to this image, in slices."""
        delta = cls(MetadataImage())
        topics = TopicsDelta(delta.image.topics)
        for name in sorted(image.topics.names):
            topic = image.topics.by_name(name)
            assert topic is not None
            topics.create(topic)
            if turn.spend(1 + len(topic.partitions)):
                yield None
        for noun in NOUNS:
            if noun != "topics":
                for record in getattr(image, noun).to_records():
                    delta.replay(record)
                    if turn.spend(REPLAY_UNITS):
                        yield None
            elif topics.changed:
                delta.topics = topics
        return delta

    def finish_snapshot(self) -> None:
        """What was replayed was a whole snapshot: anything of the image that it did not name is gone."""
        for noun in NOUNS:
            self._noun(noun).finish_snapshot()

    def apply(self, offset: int, epoch: int) -> MetadataImage:
        """The image with everything replayed, `offset` being that of the last record and `epoch` its leader's."""
        return do_now(self.applying(offset, epoch, Turn()))

    def applying(self, offset: int, epoch: int, turn: Turn) -> Work[MetadataImage]:
        """`apply` in slices: by the partitions, of which there may be many. Nothing is replayed meanwhile."""
        parts = {}
        for noun in NOUNS:
            delta = getattr(self, noun)
            if delta is None:
                parts[noun] = getattr(self.image, noun)
            elif isinstance(delta, TopicsDelta):
                parts[noun] = yield from delta.applying(turn)
            else:
                parts[noun] = delta.apply()
        return MetadataImage(offset, epoch, **parts)

    @property
    def empty(self) -> bool:
        return all(getattr(self, noun) is None for noun in NOUNS)

    @property
    def changed_topics(self) -> Mapping[bytes, TopicDelta]:
        """Created and altered topics by id."""
        return {} if self.topics is None else self.topics.changed

    @property
    def deleted_topics(self) -> Mapping[bytes, TopicImage]:
        return {} if self.topics is None else self.topics.deleted

    def _method(self, record_class: type[Any]) -> Callable[[Any], Any]:
        if record_class in WITHOUT_STATE:
            method: Callable[[Any], Any] = _nothing
        elif record_class is records.RemoveTopicRecord:
            method = self._replay_remove_topic
        else:
            noun, name = REPLAY[record_class]
            method = getattr(self._noun(noun), name)
        self._methods[record_class] = method
        return method

    def _replay_remove_topic(self, record: records.RemoveTopicRecord) -> None:
        name = self._noun("topics").replay_remove_topic(record)
        self._noun("configs").delete_topic(name)

    def _noun(self, noun: str) -> Any:
        delta = getattr(self, noun)
        if delta is None:
            delta = _DELTAS[noun](getattr(self.image, noun))
            setattr(self, noun, delta)
        return delta


def _nothing(record: Any) -> None:
    pass
