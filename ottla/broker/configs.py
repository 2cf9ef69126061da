"""The configuration of this broker as its logs and handlers need it: the node's values, and those of a topic in their place.

The node's values change with the metadata (`update`): everything here is looked up when it is needed, or dropped then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ottla.controller.metadata.configs import ConfigsImage
from ottla.controller.metadata.topic_names import LOCAL_TOPICS
from ottla.protocol.releases import Advertised
from ottla.server.config.dynamic import Levels
from ottla.server.config.key import Values
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import SYSTEM
from ottla.server.config.resource_configs import topic_values
from ottla.storage.log_config import LogConfig

#: These fields of LogConfig come from the broker alone: a topic cannot override them.
BROKER_LEVEL = {
    "producer_id_expiration_ms": "producer.id.expiration.ms",
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
}


class BrokerConfigs:
    """The values of the node's and the topics' configurations."""

    def __init__(self, node: NodeConfig) -> None:
        self.node = node
        self.node_id: int = node["node.id"]
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def __getitem__(self, name: str) -> Any:
        return self.node[name]

    @property
    def levels(self) -> Levels:
        return self.node.levels

    @property
    def values(self) -> Values:
        return self.node.values

    @property
    def advertised(self) -> Advertised:
        return self.node.advertised

    def update(self, configs: ConfigsImage) -> None:
        """Apply dynamic configurations of this broker, or of all brokers, from the metadata."""
        self.node.set_dynamic(configs.for_broker(self.node_id), configs.for_broker(""))
        self._log_configs.clear()

    def for_opening(self, known: ConfigsImage, topic: str, topic_id: bytes) -> LogConfig:
        """Return the LogConfig with which a log is opened, before the newest metadata is known.

        Where there is remote storage each log is opened as if it had some: otherwise it would start at its first segment, and forget what is
        in the store. Its replica's role brings the configuration as it is (`Log.update_config`).
        """
        config = self.for_topic(known, topic)
        return replace(config, remote_storage_enable=True) if self[SYSTEM] else config

    def for_topic(self, known: ConfigsImage, topic: str) -> LogConfig:
        """Return the LogConfig of a topic. Like Kafka, the broker accepts remote.storage.enable for topics that Kafka creates
        itself, where it has no effect.
        """
        config = self.for_log(known.for_topic(topic))
        is_local = topic in LOCAL_TOPICS and config.remote_storage_enable
        return replace(config, remote_storage_enable=False) if is_local else config

    def for_log(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return a topic's LogConfig. Most topics share one: 10,000 partitions must not parse 10,000 times."""
        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            values = topic_values(overrides, self.values)
            found = self._log_configs[key] = LogConfig.from_topic_configs(
                {
                    **values,
                    **{field: self.values[name] for field, name in BROKER_LEVEL.items()},
                    "validate_records": self.node["ottla.produce.validate.records"],
                }
            )
        return found
