"""Precedence of configuration values, and their source and synonyms for DescribeConfigs, as in Kafka. No file is read here.

a topic's own value              DYNAMIC_TOPIC            1
a broker's, set while it ran     DYNAMIC_BROKER           2
all brokers', set while running  DYNAMIC_DEFAULT_BROKER   3
the properties file              STATIC_BROKER            4
the table                        DEFAULT                  5
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.server.config.broker import (
    BROKER_CONFIGS,
    CLUSTER_LEVEL_LISTENER_CONFIGS,
    DYNAMIC_ONLY,
    LISTENER_PREFIX,
    base_name,
    is_dynamic,
    is_secret,
    key_of,
    synonyms,
)
from ottla.server.config.client_metrics import CLIENT_METRICS_CONFIGS
from ottla.server.config.effects import check_effect
from ottla.server.config.errors import ConfigError
from ottla.server.config.group import GROUP_CONFIGS, broker_default, group_values
from ottla.server.config.key import ConfigKey, Scope, Values, to_text
from ottla.server.config.topic import TOPIC_CONFIGS, TOPIC_SYNONYMS, topic_values


class Source(IntEnum):
    """The numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: Source


class Described(NamedTuple):
    """One configuration as DescribeConfigs shows it. `type` 0 means unknown."""

    name: str
    value: str | None
    read_only: bool
    source: Source
    sensitive: bool
    synonyms: list[Synonym]
    type: int
    doc: str | None


class Levels(NamedTuple):
    """The texts of a broker's configurations: dynamic ones, dynamic defaults of all brokers, and its properties file."""

    broker: Mapping[str, str]
    default: Mapping[str, str]
    static: Mapping[str, str]


def broker_values(levels: Levels, rejected: list[ConfigError] | None = None) -> Values:
    """Returns every configuration's parsed value. An invalid dynamic value is ignored and added to `rejected`."""
    values: dict[str, object] = {name: key.default for name, key in {**BROKER_CONFIGS, **DYNAMIC_ONLY}.items()}
    for name, text in levels.static.items():
        key = BROKER_CONFIGS.get(name)
        if key is not None:
            values[name] = key.parse(text)
    for level in (levels.default, levels.broker):
        for name, text in level.items():
            key = key_of(name)
            if key is None or base_name(name) != name:
                continue
            try:
                values[name] = key.parse(text)
            except ConfigError as error:
                if rejected is not None:
                    rejected.append(error)
    return values


def broker_synonyms(name: str, names: Iterable[str], levels: Levels, secret: bool) -> list[Synonym]:
    """Returns the values of `name` under any of `names`, in the order of precedence."""
    found = []
    names = tuple(names)
    for level, source in (
        (levels.broker, Source.DYNAMIC_BROKER),
        (levels.default, Source.DYNAMIC_DEFAULT_BROKER),
        (levels.static, Source.STATIC_BROKER),
    ):
        found += [Synonym(each, None if secret else level[each], source) for each in names if each in level]
    for each in names:
        key = BROKER_CONFIGS.get(each)
        if key is not None and not key.required and key.default is not None:
            found.append(Synonym(each, None if secret else key.to_text(key.default), Source.DEFAULT))
    # A listener's own value is no synonym of the plain name, nor is a value in hours a synonym of an unset one in ms.
    first = next((number for number, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def describe_broker(levels: Levels, values: Values) -> list[Described]:
    """Describes all configurations of one broker; internal ones only if they are set."""
    texts = {**levels.static, **levels.default, **levels.broker}
    names = [name for name, key in BROKER_CONFIGS.items() if not key.internal or name in texts]
    names += [name for name in texts if name not in BROKER_CONFIGS]
    return [_describe_broker(name, levels, values, texts, per_broker=True) for name in names]


def describe_broker_defaults(levels: Levels) -> list[Described]:
    """Describes the dynamic defaults of all brokers."""
    return [_describe_broker(name, levels, {}, levels.default, per_broker=False) for name in levels.default]


def _describe_broker(
    name: str, levels: Levels, values: Values, texts: Mapping[str, str], *, per_broker: bool
) -> Described:
    key = key_of(name)
    secret = is_secret(name)
    value = None
    if not secret:
        value = to_text(values[name], key.type) if key is not None and name in values else texts[name]
    found = broker_synonyms(name, synonyms(name), levels, secret)
    if not per_broker:
        found = [synonym for synonym in found if synonym.source is Source.DYNAMIC_DEFAULT_BROKER]
    return Described(
        name=name,
        value=value,
        read_only=not is_dynamic(name),
        source=found[0].source if found else Source.DEFAULT,
        sensitive=secret,
        synonyms=found,
        type=0 if key is None else key.type,
        doc=None if key is None else key.doc,
    )


def describe_topic(overrides: Mapping[str, str], levels: Levels, values: Values) -> list[Described]:
    """Describes all configurations of a topic on this broker."""
    effective = topic_values(overrides, values)
    rows = []
    for name, key in TOPIC_CONFIGS.items():
        if key.internal and name not in overrides:
            continue
        found: list[Synonym] = []
        if name in TOPIC_SYNONYMS:
            first = TOPIC_SYNONYMS[name][0][0]
            found = broker_synonyms(first, synonyms(first), levels, secret=False)
        if name in overrides:
            found.insert(0, Synonym(name, key.to_text(effective[name]), Source.DYNAMIC_TOPIC))
        rows.append(_described(key, effective[name], found))
    return rows


def describe_group(overrides: Mapping[str, str], levels: Levels, values: Values) -> list[Described]:
    """Describes all configurations of a group on this broker."""
    effective = group_values(overrides, values)
    rows = []
    for name, key in GROUP_CONFIGS.items():
        if key.internal and name not in overrides:
            continue
        default = broker_default(name)
        if default is None:
            found = [Synonym(name, key.to_text(key.default), Source.DEFAULT)]
        else:
            found = broker_synonyms(default, synonyms(default), levels, secret=False)
        if name in overrides:
            found.insert(0, Synonym(name, key.to_text(effective[name]), Source.GROUP))
        rows.append(_described(key, effective[name], found))
    return rows


def describe_client_metrics(configs: Mapping[str, str]) -> list[Described]:
    """Describes all configurations of a client-metrics subscription."""
    rows = []
    for name, key in CLIENT_METRICS_CONFIGS.items():
        found = [Synonym(name, configs[name], Source.CLIENT_METRICS)] if name in configs else []
        rows.append(_described(key, key.parse(configs[name]) if found else key.default, found))
    return rows


def _described(key: ConfigKey, value: object, found: list[Synonym]) -> Described:
    return Described(
        name=key.name,
        value=key.to_text(value),
        read_only=False,
        source=found[0].source if found else Source.DEFAULT,
        sensitive=False,
        synonyms=found,
        type=key.type,
        doc=key.doc,
    )


#: Kafka rejects a broker's configurations with another error code than a topic's or a group's.
CODE = ErrorCode.INVALID_REQUEST
#: Kafka opens and closes listeners while it runs; here they are opened when the node starts.
AT_START_ONLY = frozenset({"listeners", "listener.security.protocol.map"})
DEDUPE_BUFFER, CLEANER_THREADS = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
DEDUPE_BUFFER_MIN = 1 << 20


def check_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raises ConfigError if these configurations may not be set dynamically: for one broker, or for all.

    Kafka's broker checks this before it forwards the request. Here the controller does, so that no request bypasses the check.
    """
    _reject("Cannot update these configs dynamically", [name for name in configs if _is_static(name)])
    _reject(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in configs if _needs_listener(name)],
    )
    for name, text in configs.items():
        key = key_of(name)
        if key is not None:
            try:
                check_effect(name, key.parse(text))
            except ConfigError as error:
                raise ConfigError(name, error.value, error.why, message=str(error), code=CODE) from None
    _check_dedupe_buffer(configs)
    if not per_broker:
        _reject(
            "Cannot update these configs at default cluster level, broker id must be specified",
            [name for name in configs if _is_per_broker(name)],
        )
    _reject("Cannot update these configs without a restart", [name for name in configs if name in AT_START_ONLY])


def _check_dedupe_buffer(configs: Mapping[str, str]) -> None:
    text = configs.get(DEDUPE_BUFFER)
    threads = BROKER_CONFIGS[CLEANER_THREADS].parse(configs.get(CLEANER_THREADS, "1"))
    if text is not None and BROKER_CONFIGS[DEDUPE_BUFFER].parse(text) < threads * DEDUPE_BUFFER_MIN:
        why = f"requirement failed: {DEDUPE_BUFFER} must be at least 1MB per cleaner thread."
        raise ConfigError(DEDUPE_BUFFER, text, why, message=why, code=CODE)


def _reject(why: str, names: list[str]) -> None:
    if names:
        raise ConfigError(names[0], None, why, message=f"{why}: [{', '.join(names)}]", code=CODE)


def _is_static(name: str) -> bool:
    """Returns True for a known name that only the properties file can set. Unknown names may belong to an extension."""
    return name in BROKER_CONFIGS and not is_dynamic(name)


def _needs_listener(name: str) -> bool:
    key = BROKER_CONFIGS.get(name)
    return key is not None and key.dynamic is Scope.PER_BROKER and name.startswith("ssl.") and name != "ssl.client.auth"


def _is_per_broker(name: str) -> bool:
    match = LISTENER_PREFIX.fullmatch(name)
    if match is not None:
        return match.group(2) not in CLUSTER_LEVEL_LISTENER_CONFIGS
    key = BROKER_CONFIGS.get(name)
    return key is not None and key.dynamic is Scope.PER_BROKER
