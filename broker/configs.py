"""The configuration of this broker as it is now: the properties file, and above it what has been set while it runs.

`values` are parsed and by Kafka's names. They change with the metadata (`update`); who keeps a value elsewhere listens. A dynamic
value that cannot be parsed is passed over with one line in the log, since other brokers may have accepted it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from controller.metadata.configs import ConfigsImage
from server.config.dynamic import Levels, broker_values
from server.config.errors import ConfigError
from server.config.topic import topic_values
from storage.config import LogConfig

log = logging.getLogger(__name__)

#: LogConfig has these from the broker alone.
BROKER_LEVEL = {
    "producer_id_expiration_ms": "producer.id.expiration.ms",
    "transaction_max_timeout_ms": "transaction.max.timeout.ms",
}


class BrokerConfigs:
    """See the module."""

    def __init__(self, node_id: int, static: Mapping[str, str]) -> None:
        self.node_id = node_id
        self.levels = Levels({}, {}, static)
        self.values: dict[str, Any] = broker_values(self.levels)
        self.listeners: list[Callable[[], None]] = []
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def update(self, configs: ConfigsImage) -> None:
        refused: list[ConfigError] = []
        self.levels = Levels(configs.for_broker(self.node_id), configs.for_broker(""), self.levels.static)
        self.values = broker_values(self.levels, refused)
        self._log_configs.clear()
        for error in refused:
            log.warning("A dynamic configuration is passed over: %s", error)
        for listener in self.listeners:
            listener()

    def for_log(self, overrides: Mapping[str, str]) -> LogConfig:
        """A topic's LogConfig. Most topics share one: 10,000 partitions must not parse 10,000 times."""
        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            values = topic_values(overrides, self.values)
            values |= {name: self.values[property_name] for name, property_name in BROKER_LEVEL.items()}
            found = self._log_configs[key] = LogConfig.from_topic_configs(values)
        return found
