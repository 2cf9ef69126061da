"""Changes of dynamic configs of topics, brokers, groups and client metrics: all changes of a resource are made, or none.

The whole resulting configuration of a resource is validated, by the tables of server/config. A change of min.insync.replicas may have
to wait for ELRs to be emptied: eligible.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias

from ottla.controller.decisions.control_state import MIN_INSYNC_REPLICAS, ControlState
from ottla.controller.decisions.eligible import after_elrs
from ottla.controller.decisions.outcome import Decision, Outcome, check_records_max
from ottla.controller.metadata.configs import ResourceType, has_configs
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.metadata.topic_names import check_name
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.internal_topics.metadata_records import ConfigRecord, MetadataRecord
from ottla.protocol.messages.create_topics import CreatableTopicConfigs
from ottla.protocol.releases import KAFKA_4_4, Release
from ottla.server.config.broker import key_of
from ottla.server.config.dynamic import ConfigSource, check_broker_configs
from ottla.server.config.key import ConfigError, ConfigKey, Type, Values, parse
from ottla.server.config.remote_storage import check_turned_off
from ottla.server.config.resource_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    check_client_metrics,
    check_group_configs,
    check_topic_configs,
    is_shown,
    topic_defaults,
)
from ottla.server.config.table_places import check_table_name

#: The resources of which unknown configurations are rejected; brokers may have some of extensions.
NAMED: Mapping[int, str] = {ResourceType.TOPIC: "topic", ResourceType.GROUP: "group"}


class ConfigOp(IntEnum):
    """AlterConfigOp.OpType."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


Operations = Mapping[str, tuple[int, str | None]]


#: A resource's type and name, and the new values by config: a value, or an operation and its value.
Change: TypeAlias = tuple[int, str, Mapping[str, Any]]

#: The budget of one turn in bytes of values: lists take some 60 ns a byte to be changed and checked.
BYTES_PER_TURN = 256 << 10


#: The beginning of the error of a configuration that there is not.
UNKNOWN = "Unknown"


class AlterResult(NamedTuple):
    resource_type: int
    resource: str
    error: KafkaError | None


class Alter(Protocol):
    def __call__(self, state: ControlState, *, changes: Sequence[Change]) -> Outcome[list[AlterResult]]: ...


def alter_in_turns(state: ControlState, changes: Sequence[Change], alter: Alter) -> Decision[list[AlterResult]]:
    """Alter the resources in as many turns as their values take to be checked. A resource is changed in one turn, as a whole."""
    results: list[AlterResult] = []
    outcome: Outcome[list[AlterResult]] = Outcome([], [])
    for part in _in_parts(changes):
        if results:
            yield outcome.records
        outcome = yield from after_elrs(state, partial(alter, changes=part))
        results += outcome.response
    return Outcome(outcome.records, results)


def _in_parts(changes: Sequence[Change]) -> Iterator[Sequence[Change]]:
    """Split the resources of a request into those of one turn each.

    Raises KafkaError POLICY_VIOLATION for a request of several turns that may need more records than one batch has: the whole request is
    refused as in Kafka, so that it has to be known before the first turn.
    """
    begin = size = 0
    for end, (_, _, configs) in enumerate(changes):
        if size >= BYTES_PER_TURN:
            check_records_max(sum(len(each) for _, _, each in changes))
            yield changes[begin:end]
            begin, size = end, 0
        size += sum(len(name) + len(str(value)) for name, value in configs.items())
    if begin < len(changes):
        yield changes[begin:]


class ConfigDecisions:
    """Changes of configs by the tables of server/config. `broker_values`: the node's parsed configs by name, defaults included;
    `set_names`: those its file sets.
    """

    def __init__(
        self, node_id: int, broker_values: Values, set_names: Collection[str] = (), release: Release = KAFKA_4_4
    ) -> None:
        self._node_id = node_id
        self._broker_values = broker_values
        self._set_names = frozenset(set_names)
        self._release = release

    def incremental_alter(
        self, state: ControlState, changes: Sequence[tuple[int, str, Operations]], *, validate_only: bool
    ) -> Outcome[list[AlterResult]]:
        records: list[MetadataRecord] = []
        results = []
        for resource_type, resource, operations in changes:
            error = None
            try:
                records += self.alter(state, resource_type, resource, operations)
            except KafkaError as fault:
                error = self._as_in_release(fault)
            results.append(AlterResult(resource_type, resource, error))
        check_records_max(len(records))
        return Outcome([] if validate_only else records, results)

    def legacy_alter(
        self, state: ControlState, changes: Sequence[tuple[int, str, Mapping[str, str | None]]], *, validate_only: bool
    ) -> Outcome[list[AlterResult]]:
        """AlterConfigs: configs that the request does not name are removed."""
        replaced: list[tuple[int, str, Operations]] = []
        for resource_type, resource, configs in changes:
            operations: dict[str, tuple[int, str | None]] = {
                name: (ConfigOp.SET, value) for name, value in configs.items()
            }
            for name in sorted(state.image.configs.for_resource(resource_type, resource)):
                if name not in configs:
                    operations[name] = (ConfigOp.DELETE, None)
            replaced.append((resource_type, resource, operations))
        return self.incremental_alter(state, replaced, validate_only=validate_only)

    def alter(
        self,
        state: ControlState,
        resource_type: int,
        resource: str,
        operations: Operations,
        *,
        new_resource: bool = False,
    ) -> list[MetadataRecord]:
        """Return the records of one resource. `new_resource`: a topic that is created in the same batch."""
        current = state.image.configs.for_resource(resource_type, resource)
        configs = dict(current)
        records: list[MetadataRecord] = []
        for name, (operation, value) in operations.items():
            new = self._changed(resource_type, name, current.get(name), operation, value)
            # Unchanged broker configs are written again: it makes brokers re-read their key stores (KAFKA-14136).
            if new != current.get(name) or resource_type == ResourceType.BROKER:
                records.append(ConfigRecord(resource_type=resource_type, resource_name=resource, name=name, value=new))
            if new is None:
                configs.pop(name, None)
            else:
                configs[name] = new
        self._check_resource(resource_type, resource)
        if self._release.has_zookeeper and not new_resource:
            _check_exists(
                state, resource_type, resource
            )  # there a topic has to exist before its configurations are looked at
        self.validate(resource_type, resource, configs)
        if resource_type == ResourceType.TOPIC:
            _check_remote_storage(current, configs)
        self._check_elr_safety(state, resource_type, resource, operations, configs)
        if not new_resource:
            _check_exists(state, resource_type, resource)
        return records

    def _changed(
        self, resource_type: int, name: str, current: str | None, operation: int, value: str | None
    ) -> str | None:
        """Return the config's value after the operation, or None if it is removed."""
        if operation == ConfigOp.SET:
            return value
        if operation == ConfigOp.DELETE:
            return None
        if operation not in (ConfigOp.APPEND, ConfigOp.SUBTRACT):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown config operation {operation} for key {name}.")
        if not self.is_list(resource_type, name):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Can't {ConfigOp(operation).name} to key {name} because its type is not LIST.",
            )
        before = self.default(resource_type, name) if current is None else current
        parts = [part for part in (before or "").split(",") if part]
        named = (value or "").split(",")
        # A value of 32 KB has 8,000 parts, so that each is looked up, and not searched.
        if operation == ConfigOp.APPEND:
            known = set(parts)
            return ",".join([*parts, *(part for part in dict.fromkeys(named) if part not in known)])
        left = Counter(named)  # a part that is named twice is removed twice
        return ",".join([part for part in parts if not _taken(left, part)])

    def _as_in_release(self, error: KafkaError) -> KafkaError:
        """Return the error with the code that the advertised release has for it: it was another one before 2.7, and beside ZooKeeper."""
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._release.name < "2.7":
            return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
        is_of_a_value = error.code == ErrorCode.INVALID_CONFIG and not error.message.startswith(UNKNOWN)
        if is_of_a_value and self._release.has_zookeeper:
            return KafkaError(ErrorCode.INVALID_REQUEST, error.message)
        return error

    def _check_resource(self, resource_type: int, resource: str) -> None:
        if not has_configs(self._release, resource_type):
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {type_name(resource_type)}")
        match resource_type:
            case ResourceType.TOPIC:
                if not resource:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
                check_name(resource)
            case ResourceType.BROKER:
                _check_broker_name(resource)
            case ResourceType.GROUP:
                if not resource:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            case ResourceType.CLIENT_METRICS:
                if not resource:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {type_name(resource_type)}")

    def _check_elr_safety(
        self, state: ControlState, resource_type: int, resource: str, operations: Operations, configs: Mapping[str, str]
    ) -> None:
        """Check min.insync.replicas: with ELR enabled the cluster-wide value must stay set, and those of single brokers are not altered."""
        if resource_type != ResourceType.BROKER or MIN_INSYNC_REPLICAS not in operations:
            return
        if not state.image.features.elr_enabled:
            return
        if resource:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            )
        if not resource and MIN_INSYNC_REPLICAS not in configs:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )

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
        named = NAMED.get(resource_type)
        if named is not None and (unknown := self._release.lacks_configs(named).intersection(configs)):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown {named} config name: {min(unknown)}")
        try:
            match resource_type:
                case ResourceType.TOPIC:
                    configs = self._without_former(configs)
                    check_table_name(resource, configs)
                    check_topic_configs(configs, self._broker_values)
                case ResourceType.BROKER:
                    check_broker_configs(configs, per_broker=bool(resource))
                case ResourceType.GROUP:
                    check_group_configs(configs, self._broker_values)
                case ResourceType.CLIENT_METRICS:
                    check_client_metrics(configs)
        except ConfigError as error:
            raise error.as_reply() from None

    def _without_former(self, configs: Mapping[str, str]) -> Mapping[str, str]:
        """Return the configurations of a topic without those that only the advertised release has: they are checked, kept and described."""
        former = {
            name: Type[config.type]
            for name, config in self._release.own_configs("topic").items()
            if name in configs and name not in TOPIC_CONFIGS
        }
        for name, kind in former.items():
            parse(name, configs[name], kind)
        return {name: text for name, text in configs.items() if name not in former}

    def effective_topic_configs(
        self, image: MetadataImage, overrides: Mapping[str, str]
    ) -> list[CreatableTopicConfigs]:
        """Return a topic's effective configs by name, as CreateTopics v5+ shows them. `overrides`: the topic's own configs."""
        defaults = topic_defaults(self._broker_values)
        dynamic = (
            (image.configs.for_broker(self._node_id), ConfigSource.DYNAMIC_BROKER),
            (image.configs.for_broker(""), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )
        lacks = self._release.lacks_configs("topic")
        configs = []
        for name, key in sorted(TOPIC_CONFIGS.items()):
            if key.internal or (name in lacks and name not in overrides) or not is_shown(name, overrides):
                continue
            value, source = key.to_text(defaults[name]), ConfigSource.DEFAULT
            synonyms = TOPIC_SYNONYMS.get(name, ())
            if any(synonym in self._set_names for synonym, _ in synonyms):
                source = ConfigSource.STATIC_BROKER
            if name in overrides:
                value, source = overrides[name], ConfigSource.DYNAMIC_TOPIC
            else:
                value, source = _dynamic(dynamic, synonyms) or (value, source)
            shown = None if key.secret else value
            configs.append(CreatableTopicConfigs(name, shown, config_source=source, is_sensitive=key.secret))
        return configs


def _taken(left: Counter[str], part: str) -> bool:
    """Take the part out of `left` if it is there."""
    is_there = left[part] > 0
    left[part] -= is_there
    return is_there


def type_name(resource_type: int) -> str:
    try:
        return ResourceType(resource_type).name
    except ValueError:
        return str(resource_type)


def _check_exists(state: ControlState, resource_type: int, resource: str) -> None:
    """Check that a topic or broker exists. Groups and subscriptions need not exist before they have configs."""
    if resource_type == ResourceType.TOPIC and resource not in state.image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource}' does not exist.")
    if (
        resource_type == ResourceType.BROKER
        and resource
        and int(resource) not in state.image.cluster.brokers
        and int(resource) not in state.image.cluster.controllers
        and int(resource) != state.settings.node_id
    ):
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {resource} found.")


def _check_broker_name(name: str) -> None:
    if not name:
        return
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
    if broker_id < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")


Level = tuple[Mapping[str, str], ConfigSource]


def _dynamic(levels: tuple[Level, ...], synonyms: tuple[tuple[str, int], ...]) -> tuple[str, ConfigSource] | None:
    """Return the value and source of the first level that sets a synonym."""
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


def _check_remote_storage(current: Mapping[str, str], configs: Mapping[str, str]) -> None:
    try:
        check_turned_off(current, configs)
    except ConfigError as error:
        raise error.as_reply() from None
