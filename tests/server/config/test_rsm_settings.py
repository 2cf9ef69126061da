"""The settings of Kafka's widely used open RemoteStorageManager, as they stand in a broker's file."""

from __future__ import annotations

import pytest

from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.remote_storage import tier_location, tier_options
from ottla.server.config.rsm_settings import MANAGER_CLASS, RSM_CLASS, RsmSettings, rsm_settings

NODE = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/data",
    "remote.log.storage.system.enable": "true",
    MANAGER_CLASS: RSM_CLASS,
}
S3 = {
    "rsm.config.storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
    "rsm.config.storage.s3.bucket.name": "segments",
    "rsm.config.storage.s3.endpoint.url": "http://127.0.0.1:9000",
    "rsm.config.storage.s3.region": "eu",
    "rsm.config.storage.aws.access.key.id": "a",
    "rsm.config.storage.aws.secret.access.key": "s",
}


def node(**more: str) -> NodeConfig:
    return NodeConfig(NODE | {name.replace("_", "."): text for name, text in more.items()})


def settings_of(config: NodeConfig) -> RsmSettings | None:
    return rsm_settings(config.values, config.static)


def test_the_file_of_such_a_broker_needs_no_change() -> None:
    config = NodeConfig(NODE | S3 | {"rsm.config.key.prefix": "some/prefix/", "rsm.config.chunk.size": "1048576"})
    assert settings_of(config) == RsmSettings(1 << 20)
    assert tier_location(config.own, config.static) == "s3://segments/some/prefix"
    wanted = {"endpoint": "http://127.0.0.1:9000", "region": "eu", "access_key_id": "a", "secret_access_key": "s"}
    assert tier_options(config.static) == wanted


def test_compression_is_as_it_says() -> None:
    where = {"ottla.tier.location": "/segments"}
    given = {"rsm.config.compression.enabled": "true", "rsm.config.compression.heuristic.enabled": "true"}
    config = NodeConfig(NODE | where | given)
    assert settings_of(config) == RsmSettings(compresses=True, leaves_compressed=True)
    assert tier_location(config.own, config.static) == "/segments"


@pytest.mark.parametrize(
    ("backend", "bucket", "location"),
    [
        ("gcs.GcsStorage", "gcs.bucket.name", "gs://b"),
        ("azure.AzureBlobStorage", "azure.container.name", "az://b"),
        ("filesystem.FileSystemStorage", "root", "b"),
    ],
)
def test_other_backends_have_their_addresses(backend: str, bucket: str, location: str) -> None:
    given = {
        "rsm.config.storage.backend.class": f"io.aiven.kafka.tieredstorage.storage.{backend}",
        f"rsm.config.storage.{bucket}": "b",
    }
    config = NodeConfig(NODE | given)
    assert tier_location(config.own, config.static) == location


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        (
            "encryption.enabled",
            "true",
            "encrypted segments are neither written nor read: that needs the plug-in's key ring",
        ),
        ("segment.format", "iceberg", "tables are ottla.table"),
        ("key.prefix", "segments-", "must end with a slash"),
        ("chunk.size", "0", "a number of bytes from 1 to"),
        ("chunk.size", "4 MiB", "a number of bytes from 1 to"),
        ("chunk.size", str(1 << 30), "a number of bytes from 1 to"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(name: str, text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        NodeConfig(NODE | S3 | {f"rsm.config.{name}": text})


@pytest.mark.parametrize("folder", ["/data", "/data/", "/data/cache", "/other/../data/cache"])
def test_the_cache_is_in_no_log_directory_where_it_would_be_taken_for_a_partition(folder: str) -> None:
    with pytest.raises(ConfigError, match="it must not be in the log directory /data"):
        node(ottla_tier_location="/segments", ottla_tier_cache_directory=folder)
    assert node(ottla_tier_location="/segments", ottla_tier_cache_directory="/database")


def test_another_class_has_another_layout() -> None:
    config = node(ottla_tier_location="/segments", remote_log_storage_manager_class_name="org.example.Storage")
    assert settings_of(config) is None
