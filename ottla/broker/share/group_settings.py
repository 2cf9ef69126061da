"""The settings of a group that leaders of share partitions use: the group's own, else the broker's."""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.broker.share.share_partition import ShareSettings
from ottla.protocol.features import SHARE_VERSION
from ottla.server.client_bounds import Kept
from ottla.server.config.resource_configs import group_values
from ottla.server.config.validators import DURATION

#: The broker's settings that are the defaults of groups, in the order of `ShareSettings`.
PARTITION_SETTINGS = (
    "group.share.record.lock.duration.ms",
    "group.share.delivery.count.limit",
    "group.share.partition.max.record.locks",
)
#: The share.version of KIP-1191.
DEAD_LETTERS_SINCE = 2
READ_COMMITTED = "read_committed"
EARLIEST = "earliest"
LATEST = "latest"
BY_DURATION = "by_duration:"
#: Settings of some 3,000 groups; each takes some 300 bytes besides its entry.
KEPT_BYTES_MAX = 1024 * 1024


class ShareGroupSettings(NamedTuple):
    partition: ShareSettings
    read_committed: bool
    #: share.auto.offset.reset
    offset_reset: str
    #: errors.deadletterqueue.topic.name; empty: the group has no dead letters.
    dead_letter_topic: str = ""
    #: errors.deadletterqueue.copy.record.enable
    copies_records: bool = False


class GroupSettingsView:
    """The settings of each group as they are now. They are asked for by every fetch, so those of unchanged configs are kept."""

    def __init__(self, configs: BrokerConfigs, metadata: MetadataCache) -> None:
        self._configs = configs
        self._metadata = metadata
        self._made_of: tuple[object, object, int] | None = None
        self.kept: Kept[str, ShareGroupSettings] = Kept("share_group_settings", KEPT_BYTES_MAX)

    def of(self, group_id: str) -> ShareGroupSettings:
        image, broker_values = self._metadata.image.configs, self._configs.values
        level = self._metadata.image.features.level(SHARE_VERSION)
        made_of = self._made_of
        if made_of is None or made_of[0] is not image or made_of[1] is not broker_values or made_of[2] != level:
            self._made_of = image, broker_values, level
            self.kept.clear()
        settings = self.kept.get(group_id)
        if settings is None:
            values = group_values(image.for_group(group_id), broker_values)
            lock_duration_ms, limit, locks = (values[name.removeprefix("group.")] for name in PARTITION_SETTINGS)
            topic = values["errors.deadletterqueue.topic.name"] if level >= DEAD_LETTERS_SINCE else ""
            made = ShareGroupSettings(
                ShareSettings(lock_duration_ms, limit, locks, values["share.renew.acknowledge.enable"], bool(topic)),
                values["share.isolation.level"] == READ_COMMITTED,
                values["share.auto.offset.reset"],
                topic,
                values["errors.deadletterqueue.copy.record.enable"],
            )
            return self.kept.keep(group_id, made, group_id)
        return settings


def duration_ms(text: str) -> int:
    """Return the ms of an ISO 8601 duration such as P1DT2H or PT0.5S, which the config's validator has checked."""
    found = DURATION.fullmatch(text)
    assert found is not None
    days, hours, minutes, seconds = (float(amount or 0) for amount in found.groups())
    return round((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000) // 1000
