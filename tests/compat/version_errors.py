"""The error codes with which a broker refuses requests: what changed between releases, asked of a live broker and of one that emulates it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ottla.protocol.messages import alter_configs, incremental_alter_configs
from ottla.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.wire import Wire

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
#: What is altered: type and name of a resource, and a configuration. Left out are those in docs/DIFFERENCES.md.
ALTERED = (
    (TOPIC, "compared", "retention.ms", "1000000"),
    (TOPIC, "not-there", "retention.ms", "1000000"),
    (TOPIC, "compared", "not.there", "1"),
    (TOPIC, "not-there", "not.there", "1"),
    (TOPIC, "compared", "retention.ms", "text"),
    (BROKER, "1", "sasl.kerberos.min.time.before.relogin", "58000"),
    (BROKER, "text", "log.retention.ms", "1000000"),
    (CLIENT_METRICS, "compared", "interval.ms", "1000"),
    (GROUP, "compared", "consumer.session.timeout.ms", "50000"),
    (64, "compared", "x", "1"),
)
DESCRIBED = (
    (TOPIC, "not-there"),
    (TOPIC, ""),
    (BROKER, "7"),
    (BROKER, "text"),
    (LOGGER, ""),
    (CLIENT_METRICS, "x"),
    (GROUP, "x"),
    (64, "x"),
)
CREATED: Mapping[str, dict[str, Any]] = {
    "with replicas of many brokers": {"num_partitions": 1, "replication_factor": 9},
    "without partitions": {"num_partitions": 0, "replication_factor": 1},
    "with no replicas": {"num_partitions": 1, "replication_factor": 0},
    "with an unknown configuration": {
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [CreatableTopicConfig("not.there", "1")],
    },
    "with a wrong value": {
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [CreatableTopicConfig("retention.ms", "x")],
    },
    "that is there": {"name": "compared", "num_partitions": 1, "replication_factor": 1},
    "with a wrong name": {"name": "a b", "num_partitions": 1, "replication_factor": 1},
    "of defaults": {"name": "of-defaults", "num_partitions": -1, "replication_factor": -1},
}


def errors(wire: Wire, served: Mapping[int, tuple[int, int]]) -> Iterator[tuple[str, int]]:
    """Give error codes by what was asked for; `served` has the lowest and the highest version of each API."""

    def ask(request: Any, key: int, version: int) -> Any:
        if key not in served:
            return None
        low, high = served[key]
        return wire.request(request, max(low, min(version, high)))

    for what, fields in CREATED.items():
        topic = CreatableTopic(**{"name": "refused", **fields})
        if response := ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=True), 19, 4):
            yield f"create a topic {what}", response.topics[0].error_code
    for kind, name, config, value in ALTERED:
        incremental = incremental_alter_configs.AlterConfigsResource(
            kind, name, [incremental_alter_configs.AlterableConfig(config, 0, value)]
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest([incremental], validate_only=True)
        if response := ask(request, 44, 0):
            yield f"alter {kind} {name} {config}={value}", response.responses[0].error_code
        whole = alter_configs.AlterConfigsResource(kind, name, [alter_configs.AlterableConfig(config, value)])
        if response := ask(alter_configs.AlterConfigsRequest([whole], validate_only=True), 33, 0):
            yield f"alter all of {kind} {name} {config}={value}", response.responses[0].error_code
    for kind, name in DESCRIBED:
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        if response := ask(DescribeConfigsRequest(resources=[resource]), 32, 1):
            yield f"describe {kind} {name}", response.results[0].error_code
    for what, name, count in (("of no topic", "not-there", 3), ("fewer", "compared", 0), ("as many", "compared", 1)):
        grown = CreatePartitionsTopic(name=name, count=count, assignments=None)
        if response := ask(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=True), 37, 1):
            yield f"partitions {what}", response.results[0].error_code
    if response := ask(DeleteTopicsRequest(topic_names=["not-there"], timeout_ms=10_000), 20, 1):
        yield "delete no topic", response.responses[0].error_code
    if response := ask(DeleteGroupsRequest(groups_names=["not-there"]), 42, 0):
        yield "delete no group", response.results[0].error_code
