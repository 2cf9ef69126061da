"""The tables of server/config for decisions: validation of configs, and the effective configs of a topic."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from ottla.controller.decisions.configs import EffectiveConfig
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.releases import KAFKA_4_4, Release
from ottla.server.config.broker import key_of
from ottla.server.config.client_metrics import CLIENT_METRICS_CONFIGS, check_client_metrics
from ottla.server.config.dynamic import check_broker_configs
from ottla.server.config.errors import ConfigError
from ottla.server.config.group import GROUP_CONFIGS, check_group_configs
from ottla.server.config.key import ConfigKey, Type, Values
from ottla.server.config.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS, check_topic_configs, topic_defaults

# DescribeConfigsResponse.ConfigSource
DYNAMIC_TOPIC_CONFIG = 1
DYNAMIC_BROKER_CONFIG = 2
DYNAMIC_DEFAULT_BROKER_CONFIG = 3
STATIC_BROKER_CONFIG = 4
DEFAULT_CONFIG = 5
#: The resources of which unknown configurations are rejected; brokers may have some of extensions.
NAMED: Mapping[int, str] = {ResourceType.TOPIC: "topic", ResourceType.GROUP: "group"}


class TableSchema:
    """The schema by the tables. `broker_values`: the node's parsed configs by name, defaults included; `set_names`: those its file sets."""

    def __init__(
        self, node_id: int, broker_values: Values, set_names: Collection[str] = (), release: Release = KAFKA_4_4
    ) -> None:
        self._node_id = node_id
        self._broker_values = broker_values
        self._set_names = frozenset(set_names)
        self._lacks = release.lacks_configs

    def is_list(self, resource_type: int, name: str) -> bool:
        key = _key(resource_type, name)
        return key is not None and key.type is Type.LIST

    def default(self, resource_type: int, name: str) -> str | None:
        key = _key(resource_type, name)
        if key is None or key.required:
            return None
        if resource_type == ResourceType.TOPIC:
            return key.to_text(topic_defaults(self._broker_values)[name])
        return key.to_text(key.default)

    def validate(self, resource_type: int, resource: str, configs: Mapping[str, str]) -> None:
        nulls = [name for name, value in configs.items() if value is None]
        if nulls:
            kind = "topic" if resource_type == ResourceType.TOPIC else "group"
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Null value not supported for {kind} configs: {','.join(nulls)}"
            )
        if resource_type in NAMED and (unknown := self._lacks.intersection(configs)):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {NAMED[resource_type]} config name: {min(unknown)}")
        try:
            match resource_type:
                case ResourceType.TOPIC:
                    check_topic_configs(configs, self._broker_values)
                case ResourceType.BROKER:
                    check_broker_configs(configs, per_broker=bool(resource))
                case ResourceType.GROUP:
                    check_group_configs(configs, self._broker_values)
                case ResourceType.CLIENT_METRICS:
                    check_client_metrics(configs)
        except ConfigError as error:
            raise error.as_reply() from None

    def effective_topic_configs(self, image: MetadataImage, overrides: Mapping[str, str]) -> list[EffectiveConfig]:
        """Returns a topic's effective configs by name. `overrides`: the topic's own configs."""
        defaults = topic_defaults(self._broker_values)
        dynamic = (
            (image.configs.for_broker(self._node_id), DYNAMIC_BROKER_CONFIG),
            (image.configs.for_broker(""), DYNAMIC_DEFAULT_BROKER_CONFIG),
        )
        configs = []
        for name, key in sorted(TOPIC_CONFIGS.items()):
            if key.internal or (name in self._lacks and name not in overrides):
                continue
            value, source = key.to_text(defaults[name]), DEFAULT_CONFIG
            synonyms = TOPIC_SYNONYMS.get(name, ())
            if any(synonym in self._set_names for synonym, _ in synonyms):
                source = STATIC_BROKER_CONFIG
            if name in overrides:
                value, source = overrides[name], DYNAMIC_TOPIC_CONFIG
            else:
                value, source = _dynamic(dynamic, synonyms) or (value, source)
            configs.append(EffectiveConfig(name, value, source, read_only=False, is_sensitive=key.secret))
        return configs


Level = tuple[Mapping[str, str], int]


def _dynamic(levels: tuple[Level, ...], synonyms: tuple[tuple[str, int], ...]) -> tuple[str, int] | None:
    """Returns the value and source of the first level that sets a synonym."""
    for values, source in levels:
        for synonym, factor in synonyms:
            text = values.get(synonym)
            if text is not None:
                # The factor converts hours or minutes; -1 (unlimited) has no unit.
                return (str(int(text) * factor) if factor > 1 and int(text) >= 0 else text), source
    return None


def _key(resource_type: int, name: str) -> ConfigKey | None:
    finders: dict[int, Callable[[str], ConfigKey | None]] = {
        ResourceType.TOPIC: TOPIC_CONFIGS.get,
        ResourceType.BROKER: key_of,
        ResourceType.GROUP: GROUP_CONFIGS.get,
        ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS.get,
    }
    find = finders.get(resource_type)
    return None if find is None else find(name)
