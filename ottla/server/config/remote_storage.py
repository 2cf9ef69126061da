"""Rules of remote storage (KIP-405): the place of a node's store, and the topics that may have remote storage.

The messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Mapping
from os.path import abspath, commonpath

from ottla.server.config.key import ConfigError, Values
from ottla.server.config.rsm_settings import rsm_location, rsm_options, rsm_settings

SYSTEM, TOPIC = "remote.log.storage.system.enable", "remote.storage.enable"
LOCATION, CACHE = "ottla.tier.location", "ottla.tier.cache.directory"
#: `ottla.tier.store.NAME=VALUE` in the node's file is an option of the store, such as a key.
TIER_STORE_OPTION = "ottla.tier.store."
#: The prefixes of properties that Kafka passes to its managers of metadata and of segments. Of these only sizes of the topic
#: and LocalTieredStorage's folder are used.
METADATA_MANAGER, STORAGE_MANAGER = "rlmm.config.", "rsm.config."
LOCAL_FOLDER = "rsm.config.dir"
PREFIXES = (TIER_STORE_OPTION, METADATA_MANAGER, STORAGE_MANAGER)
COPY_OFF, DELETE = "remote.log.copy.disable", "remote.log.delete.on.disable"
AS_THE_TOPIC, UNLIMITED = -2, -1


def tier_location(own: Values, static: Mapping[str, str]) -> str:
    """Return the path or address of the store, or "" if there is none."""
    return own[LOCATION] or static.get(LOCAL_FOLDER, "") or rsm_location(static)


def tier_options(static: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the store. Some are passwords."""
    return rsm_options(static) | {
        name.removeprefix(TIER_STORE_OPTION): text
        for name, text in static.items()
        if name.startswith(TIER_STORE_OPTION)
    }


def is_remote(configs: Mapping[str, str]) -> bool:
    """Return whether a topic has remote storage, from the texts of its configuration."""
    return configs.get(TOPIC, "").lower() == "true"


def check_system(values: Values, own: Values, static: Mapping[str, str]) -> None:
    """Raise ConfigError if remote storage is on, but no place for it is set, or its plug-in's settings cannot be served."""
    if values[SYSTEM]:
        rsm_settings(values, static)
        _check_cache(values, own)
    if values[SYSTEM] and not tier_location(own, static):
        text = f"{SYSTEM}=true needs {LOCATION}, the path or address below which segments lie"
        raise ConfigError(SYSTEM, "true", text, message=text)


def _check_cache(values: Values, own: Values) -> None:
    """Raise ConfigError if the cache is in a log directory: its folder would be taken for a partition there."""
    folder = own[CACHE]
    for directory in values["log.dirs"] or values["log.dir"]:
        if folder and commonpath((abspath(folder), abspath(directory))) == abspath(directory):
            raise ConfigError(CACHE, folder, f"it must not be in the log directory {directory}")


def check_remote_storage(values: Values, broker_values: Values) -> None:
    """Raise ConfigError if a topic's parsed values may not be combined. The order of checks is Kafka's."""
    if not values[TOPIC]:
        return
    if not broker_values.get(SYSTEM):
        raise _refused(
            TOPIC,
            "true",
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
        )
    if list(values["cleanup.policy"]) not in ([], ["delete"]):
        text = (
            "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list."
        )
        raise _refused(TOPIC, "true", text)
    for unit in ("bytes", "ms"):
        whole, local = values[f"retention.{unit}"], values[f"local.retention.{unit}"]
        if whole == UNLIMITED or local == AS_THE_TOPIC:
            continue
        text = ""
        if local == UNLIMITED:
            text = f"Value must not be -1 as retention.{unit} value is set as {whole}."
        elif local > whole:
            text = f"Value must not be more than retention.{unit} property value: {whole}"
        if text:
            name = f"local.retention.{unit}"
            raise ConfigError(name, local, text, message=f"Invalid value {local} for configuration {name}: {text}")
    for unit in ("bytes", "ms"):
        local = values[f"local.retention.{unit}"]
        if values[COPY_OFF] and local not in (AS_THE_TOPIC, values[f"retention.{unit}"]):
            text = (
                f"When `{COPY_OFF}` is set to true, the `local.retention.{unit}` and `retention.{unit}` must be set to the"
                " identical value because there will be no more logs copied to the remote storage."
            )
            raise _refused(COPY_OFF, "true", text)


def check_turned_off(existing: Mapping[str, str], configs: Mapping[str, str]) -> None:
    """Raise ConfigError if a change would delete a topic's remote segments without an explicit request for that."""
    if is_remote(existing) and not is_remote(configs) and configs.get(DELETE, "").lower() != "true":
        text = (
            "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and turn to"
            f" read only, please set `{TOPIC}=true,{COPY_OFF}=true`. If you want to disable remote storage and delete all remote data,"
            f" please set `{TOPIC}=false,{DELETE}=true`."
        )
        raise _refused(TOPIC, "false", text)


def _refused(name: str, value: str, text: str) -> ConfigError:
    return ConfigError(name, value, text, message=text)
