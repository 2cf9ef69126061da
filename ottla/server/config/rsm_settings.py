"""The settings of the widely used open RemoteStorageManager of Kafka (by Aiven), by their own names: the file of such a broker needs no change.

    remote.log.storage.manager.class.name=io.aiven.kafka.tieredstorage.RemoteStorageManager    chooses the layout of that plug-in
    rsm.config.chunk.size, .compression.enabled, .compression.heuristic.enabled                  how segments are written
    rsm.config.storage.*, rsm.config.key.prefix                                                  where they are, without ottla.tier.location

The plug-in's caches and limits have no effect. Encryption and Iceberg are refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.server.config.key import ConfigError, Values

MANAGER_CLASS = "remote.log.storage.manager.class.name"
RSM_CLASS = "io.aiven.kafka.tieredstorage.RemoteStorageManager"
PREFIX = "rsm.config."
CHUNK_SIZE, KEY_PREFIX = f"{PREFIX}chunk.size", f"{PREFIX}key.prefix"
COMPRESSION, HEURISTIC = f"{PREFIX}compression.enabled", f"{PREFIX}compression.heuristic.enabled"
ENCRYPTION, FORMAT = f"{PREFIX}encryption.enabled", f"{PREFIX}segment.format"
BACKEND, STORAGE = f"{PREFIX}storage.backend.class", f"{PREFIX}storage."
#: The scheme of an address by the end of the backend's class, and the name of the bucket's property.
BUCKETS = {
    ".S3Storage": ("s3", "s3.bucket.name"),
    ".GcsStorage": ("gs", "gcs.bucket.name"),
    ".AzureBlobStorage": ("az", "azure.container.name"),
}
FOLDER_BACKEND, FOLDER = ".FileSystemStorage", "root"
#: Options of a store by the plug-in's names for them.
OPTIONS = {
    "s3.endpoint.url": "endpoint",
    "s3.region": "region",
    "aws.access.key.id": "access_key_id",
    "aws.secret.access.key": "secret_access_key",
    "aws.session.token": "session_token",
}
#: What the plug-in's documentation recommends, and the largest chunk that is decompressed here (protocol/records/compression.py).
CHUNK_BYTES, CHUNK_BYTES_MAX = 4 << 20, 256 << 20


class RsmSettings(NamedTuple):
    """How segments are written."""

    chunk_bytes: int = CHUNK_BYTES
    compresses: bool = False
    #: A segment whose first batch is compressed is left as it is.
    leaves_compressed: bool = False


def rsm_settings(values: Values, static: Mapping[str, str]) -> RsmSettings | None:
    """Return the plug-in's settings, None if another class keeps the segments. Raises ConfigError for what is not supported."""
    if values[MANAGER_CLASS] != RSM_CLASS:
        return None
    for name, allowed, why in (
        (ENCRYPTION, "false", "encrypted segments are neither written nor read: that needs the plug-in's key ring"),
        (FORMAT, "kafka", "segments are written as Kafka's alone, and tables are ottla.table.* of a topic"),
    ):
        text = static.get(name, allowed)
        if text.strip().lower() != allowed:
            raise ConfigError(name, text, why, message=f"{name}={text} cannot be served: {why}")
    prefix = static.get(KEY_PREFIX, "")
    if prefix and not prefix.endswith("/"):
        raise ConfigError(KEY_PREFIX, prefix, "it must end with a slash, because it is a folder of the store here")
    text = static.get(CHUNK_SIZE, str(CHUNK_BYTES)).strip()
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text) <= CHUNK_BYTES_MAX:
        raise ConfigError(CHUNK_SIZE, text, f"it must be a number of bytes from 1 to {CHUNK_BYTES_MAX}")
    return RsmSettings(int(text), _is_true(static, COMPRESSION), _is_true(static, HEURISTIC))


def rsm_location(static: Mapping[str, str]) -> str:
    """Return the path or address that the plug-in's settings name, "" if they name none."""
    backend, prefix = static.get(BACKEND, ""), static.get(KEY_PREFIX, "").strip("/")
    if backend.endswith(FOLDER_BACKEND):
        start = static.get(f"{STORAGE}{FOLDER}", "")
    else:
        scheme, name = next((found for end, found in BUCKETS.items() if backend.endswith(end)), ("", ""))
        bucket = static.get(f"{STORAGE}{name}", "") if name else ""
        start = f"{scheme}://{bucket}" if bucket else ""
    return f"{start.rstrip('/')}/{prefix}".rstrip("/") if start else ""


def rsm_options(static: Mapping[str, str]) -> dict[str, str]:
    """Return the options of the store that the plug-in's settings name. Some are passwords."""
    return {option: static[STORAGE + name] for name, option in OPTIONS.items() if STORAGE + name in static}


def _is_true(static: Mapping[str, str], name: str) -> bool:
    return static.get(name, "false").strip().lower() == "true"
