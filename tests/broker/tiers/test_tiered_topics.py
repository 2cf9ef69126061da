"""The topics that have remote storage, by the configurations that the metadata brings."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.configs import BrokerConfigs
from ottla.broker.tiered_topics import TieredTopics
from ottla.controller.metadata.configs import ResourceType
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.internal_topics.metadata_records import ConfigRecord, RemoveTopicRecord, TopicRecord
from ottla.server.config.node_config import NodeConfig
from ottla.storage.log_config import LogConfig
from tests.sim.cluster import properties_of


class Metadata:
    """Metadata that grows record by record, and the topics with remote storage that a broker finds in it."""

    def __init__(self, *, is_on: bool) -> None:
        settings = {"remote.log.storage.system.enable": str(is_on).lower(), "ottla.tier.location": "/store"}
        self.configs = BrokerConfigs(NodeConfig(properties_of(1, {1: "broker,controller"}, settings)))
        self.topics = TieredTopics(self.configs)
        self.image = MetadataImage()

    def bring(self, *records: object) -> None:
        delta = MetadataDelta(self.image)
        delta.replay_all(records)
        self.image = delta.apply(1, 1)
        self.topics.on_metadata_update(delta, self.image)

    def log_config(self, topic: str) -> LogConfig:
        return self.configs.for_topic(self.image.configs, topic)


def config(topic: str, value: str | None, name: str = "remote.storage.enable") -> ConfigRecord:
    return ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic, name=name, value=value)


def test_topics_are_found_by_their_configuration_until_it_changes_or_they_are_deleted() -> None:
    metadata = Metadata(is_on=True)
    changes: list[set[str]] = []
    metadata.topics.on_change = lambda: changes.append(set(metadata.topics.names))
    metadata.bring(TopicRecord(name="a", topic_id=b"a" * 16), config("a", "true"), config("b", "TRUE"))
    metadata.bring(config("plain", "5", "retention.ms"))
    metadata.bring(config("b", "false"))
    metadata.bring(config("a", "7", "local.retention.ms"))
    metadata.bring(RemoveTopicRecord(topic_id=b"a" * 16))
    assert changes == [{"a", "b"}, {"a"}, {"a"}, set()]


@pytest.mark.parametrize("topic", ["__remote_log_metadata", "__consumer_offsets"])
def test_the_topics_that_the_cluster_makes_have_no_remote_storage_whatever_their_configuration_says(topic: str) -> None:
    metadata = Metadata(is_on=True)
    metadata.bring(config(topic, "true"), config("events", "true"))
    assert metadata.topics.names == {"events"}
    assert metadata.log_config("events").remote_storage_enable
    assert not metadata.log_config(topic).remote_storage_enable


def test_a_broker_without_remote_storage_says_once_which_topics_have_some(caplog: pytest.LogCaptureFixture) -> None:
    metadata = Metadata(is_on=False)
    with caplog.at_level(logging.ERROR):
        metadata.bring(config("b", "true"), config("a", "true"))
        metadata.bring(config("a", "7", "local.retention.ms"))
    (line,) = caplog.messages
    assert line.startswith(
        "You have to delete all topics with the property remote.storage.enable=true before disabling"
    )
    assert "in remote storage of a, b cannot be read here" in line
    (waits,) = metadata.topics.metrics()
    assert [sample.labels["topic"] for sample in waits.samples if sample.value == 1] == ["a", "b"]
    assert [state["topic"] for state in metadata.topics.states("b")] == ["b"]
    assert metadata.log_config(
        "a"
    ).is_copied  # the config stays, so that nothing is deleted and the log starts where it did


def test_where_remote_storage_is_on_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    Metadata(is_on=True).bring(config("a", "true"))
    assert not caplog.messages
