"""Precedence of configuration values, their source and synonyms for DescribeConfigs, and the checks of dynamic ones, as in Kafka.

No file is read here.

a topic's own value              DYNAMIC_TOPIC            1
a broker's, set while it ran     DYNAMIC_BROKER           2
all brokers', set while running  DYNAMIC_DEFAULT_BROKER   3
the properties file              STATIC_BROKER            4
the table                        DEFAULT                  5
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Any, NamedTuple

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import DescribeConfigsResourceResult as Described
from ottla.protocol.messages.describe_configs import DescribeConfigsSynonym as Synonym
from ottla.protocol.releases import Release
from ottla.server.config.broker import (
    BROKER_CONFIGS,
    CLUSTER_LEVEL_LISTENER_CONFIGS,
    DYNAMIC_ONLY,
    LISTENER_PREFIX,
    base_name,
    check_effect,
    is_dynamic,
    is_secret,
    key_of,
    synonyms,
)
from ottla.server.config.key import ConfigError, ConfigKey, Scope, Type, Values, to_text
from ottla.server.config.resource_configs import (
    CLIENT_METRICS_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    TOPIC_SYNONYMS,
    broker_default,
    group_values,
    is_shown,
    topic_defaults,
    topic_values,
)


class ConfigSource(IntEnum):
    """The source of a configuration's value. The numbers are those in DescribeConfigs."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Levels(NamedTuple):
    """The texts of a broker's configurations: dynamic ones, dynamic defaults of all brokers, and its properties file."""

    broker: Mapping[str, str]
    default: Mapping[str, str]
    static: Mapping[str, str]
    #: The defaults of an older release that differ from those in the tables.
    release: Mapping[str, Any] = {}

    @property
    def names(self) -> frozenset[str]:
        """Return the names that are set."""
        return frozenset().union(self.broker, self.default, self.static)


#: With an older release, the node uses that release's defaults of these types. Other types are names of files, classes and
#: listeners, and their defaults are those of this node.
NUMBERS = (Type.BOOLEAN, Type.SHORT, Type.INT, Type.LONG, Type.DOUBLE)


def release_defaults(release: Release) -> Values:
    """Return the defaults of a release, parsed, by name. A default outside of the present bounds is shown, but not used."""
    found = {}
    for name, config in release.own_configs("broker").items():
        key = BROKER_CONFIGS.get(name)
        if key is not None and key.type in NUMBERS and config.default is not None and not key.required:
            with suppress(ConfigError):
                found[name] = key.parse(config.default)
    return found


def broker_values(levels: Levels, rejected: list[ConfigError] | None = None) -> Values:
    """Return every configuration's parsed value. An invalid dynamic value is ignored and added to `rejected`."""
    values: dict[str, object] = {name: key.default for name, key in {**BROKER_CONFIGS, **DYNAMIC_ONLY}.items()}
    values |= levels.release
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
    """Return the values that are set under any of `names` for `name`, in the order of precedence."""
    found = []
    names = tuple(names)
    for level, source in (
        (levels.broker, ConfigSource.DYNAMIC_BROKER),
        (levels.default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (levels.static, ConfigSource.STATIC_BROKER),
    ):
        found += [Synonym(each, None if secret else level[each], source) for each in names if each in level]
    for each in names:
        key = BROKER_CONFIGS.get(each)
        if key is not None and not key.required and key.default is not None:
            default = levels.release.get(each, key.default)
            found.append(Synonym(each, None if secret else key.to_text(default), ConfigSource.DEFAULT))
    # A listener's own value is no synonym of the plain name. And a value in hours is no synonym of an unset one in ms.
    first = next((number for number, synonym in enumerate(found) if synonym.name == name), len(found))
    return found[first:]


def describe_broker(levels: Levels, values: Values) -> list[Described]:
    """Describe all configurations of one broker. Internal ones are described only if they are set."""
    texts = {**levels.static, **levels.default, **levels.broker}
    names = [name for name, key in BROKER_CONFIGS.items() if not key.internal or name in texts]
    names += [name for name in texts if name not in BROKER_CONFIGS]
    return [_describe_broker(name, levels, values, texts, per_broker=True) for name in names]


def describe_broker_defaults(levels: Levels) -> list[Described]:
    """Describe the dynamic defaults of all brokers."""
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
        found = [synonym for synonym in found if synonym.source == ConfigSource.DYNAMIC_DEFAULT_BROKER]
    return Described(
        name=name,
        value=value,
        read_only=not is_dynamic(name),
        config_source=found[0].source if found else ConfigSource.DEFAULT,
        is_sensitive=secret,
        synonyms=found,
        config_type=0 if key is None else key.type,
        documentation=None if key is None else key.doc,
    )


def describe_topic(
    overrides: Mapping[str, str], levels: Levels, values: Values, asked: Collection[str] = ()
) -> list[Described]:
    """Describe all configurations of a topic on this broker.

    Without a table, a configuration of tables is described only if its name is requested.
    """
    effective = topic_values(overrides, values)
    rows = []
    for name, key in TOPIC_CONFIGS.items():
        if (key.internal and name not in overrides) or not (name in asked or is_shown(name, overrides)):
            continue
        found: list[Synonym] = []
        if name in TOPIC_SYNONYMS:
            first = TOPIC_SYNONYMS[name][0][0]
            found = broker_synonyms(first, synonyms(first), levels, secret=False)
        if name in overrides:
            found.insert(0, Synonym(name, key.to_text(effective[name]), ConfigSource.DYNAMIC_TOPIC))
        rows.append(_described(key, effective[name], found))
    return rows


def describe_group(overrides: Mapping[str, str], levels: Levels, values: Values) -> list[Described]:
    """Describe all configurations of a group on this broker."""
    effective = group_values(overrides, values)
    rows = []
    for name, key in GROUP_CONFIGS.items():
        if key.internal and name not in overrides:
            continue
        default = broker_default(name)
        if default is None:
            found = [Synonym(name, key.to_text(key.default), ConfigSource.DEFAULT)]
        else:
            found = broker_synonyms(default, synonyms(default), levels, secret=False)
        if name in overrides:
            found.insert(0, Synonym(name, key.to_text(effective[name]), ConfigSource.GROUP))
        rows.append(_described(key, effective[name], found))
    return rows


def describe_client_metrics(configs: Mapping[str, str]) -> list[Described]:
    """Describe all configurations of a client-metrics subscription."""
    rows = []
    for name, key in CLIENT_METRICS_CONFIGS.items():
        found = [Synonym(name, configs[name], ConfigSource.CLIENT_METRICS)] if name in configs else []
        rows.append(_described(key, key.parse(configs[name]) if found else key.default, found))
    return rows


def _described(key: ConfigKey, value: object, found: list[Synonym]) -> Described:
    return Described(
        name=key.name,
        value=key.to_text(value),
        config_source=found[0].source if found else ConfigSource.DEFAULT,
        synonyms=found,
        config_type=key.type,
        documentation=key.doc,
    )


#: For a broker's configurations Kafka uses another error code than for those of a topic or a group.
CODE = ErrorCode.INVALID_REQUEST
#: Kafka opens and closes listeners at run time; here they are opened when the node starts.
AT_START_ONLY = frozenset({"listeners", "listener.security.protocol.map"})
DEDUPE_BUFFER, CLEANER_THREADS = "log.cleaner.dedupe.buffer.size", "log.cleaner.threads"
DEDUPE_BUFFER_MIN = 1 << 20
PER_BROKER = frozenset(name for name, key in BROKER_CONFIGS.items() if key.dynamic is Scope.PER_BROKER)


def check_broker_configs(configs: Mapping[str, str], *, per_broker: bool) -> None:
    """Raise ConfigError if these configurations may not be set dynamically, for one broker or for all.

    Kafka's broker checks this before it forwards the request. Here the controller does, so that no request bypasses the check.
    """
    # Unknown names may belong to an extension.
    static = [name for name in configs if name in BROKER_CONFIGS and not is_dynamic(name)]
    _reject("Cannot update these configs dynamically", static)
    _reject(
        "These security configs can be dynamically updated only per-listener using the listener prefix",
        [name for name in configs if name in PER_BROKER and name.startswith("ssl.") and name != "ssl.client.auth"],
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


def _is_per_broker(name: str) -> bool:
    match = LISTENER_PREFIX.fullmatch(name)
    return name in PER_BROKER if match is None else match.group(2) not in CLUSTER_LEVEL_LISTENER_CONFIGS


# When values are altered at run time, Kafka's broker also checks their relations. One change may at most double the size of a
# thread pool, or halve it. Local retention may not exceed retention, even without remote storage (at its start a broker without
# remote storage may have more). Nodes have no such threads. But tools and users of Kafka read these errors, and the same limits
# keep mistakes out of the metadata.

POOLS = (
    "num.io.threads",
    "num.network.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
)
#: Local retention, the topic configuration that it may not exceed, and the broker's name of the latter. -2 means the same
#: value.
LOCAL_RETENTIONS = (
    ("log.local.retention.ms", "retention.ms", "log.retention.ms"),
    ("log.local.retention.bytes", "retention.bytes", "log.retention.bytes"),
)
AS_RETENTION, UNLIMITED = -2, -1
POOL_NAMES = frozenset((*POOLS, CLEANER_THREADS))
#: Kafka's broker checks local retention whenever a default of topics changes.
TOPIC_DEFAULTS = frozenset(name for names in TOPIC_SYNONYMS.values() for name, _ in names)


def check_changes(changed: Collection[str], before: Values, after: Values) -> None:
    """Raise ConfigError with the text of Kafka 4.3.1 for the first value that this change may not lead to."""
    if not POOL_NAMES.isdisjoint(changed):
        check_thread_pools(before, after)
    if not TOPIC_DEFAULTS.isdisjoint(changed):
        _check_local_retention(after)


def check_thread_pools(before: Values, after: Values) -> None:
    """Raise ConfigError with the text of Kafka 4.3.1 for the first thread pool whose size changes too much."""
    for name in (*POOLS, CLEANER_THREADS):
        size, now = after[name], before[name]
        failed = f"Dynamic thread count update validation failed for {name}={size}, value should"
        low, high = f"{failed} be at least half", f"{failed} not be greater than double"
        if name == CLEANER_THREADS:
            failed = "Log cleaner threads cannot be"
            low, high = f"{failed} reduced to less than half", f"{failed} increased to more than double"
            if size < 1:
                raise _invalid(name, size, "Log cleaner threads should be at least 1")
        if size < now // 2:
            raise _invalid(name, size, f"{low} the current value {now}")
        if size > now * 2:
            raise _invalid(name, size, f"{high} the current value {now}")


def _check_local_retention(values: Values) -> None:
    of_topics = topic_defaults(values)
    for name, of_topic, retention_name in LOCAL_RETENTIONS:
        local, retention = values[name], of_topics[of_topic]
        if retention <= UNLIMITED or local == AS_RETENTION:
            continue
        failed = f"Invalid value {local} for configuration {name}: Value must not be"
        if local == UNLIMITED:
            raise _invalid(name, local, f"{failed} -1 as {retention_name} value is set as {retention}.")
        if local > retention:
            raise _invalid(name, local, f"{failed} more than {retention_name} property value: {retention}")


def _invalid(name: str, size: int, why: str) -> ConfigError:
    """Return the error with Kafka's text, which names the class of the exception."""
    java = f"org.apache.kafka.common.config.ConfigException: {why}"
    message = f"Invalid value {java} for configuration Invalid dynamic configuration"
    return ConfigError(name, size, why, message=message, code=CODE)
