"""Reading and changing the settings of topics, brokers, groups and client metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.cluster import ClusterClient
from ottla.client.errors import ClusterError, check
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.list_config_resources import ListConfigResourcesRequest

RESOURCE_TYPES = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "server.properties",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
TOPIC_SOURCE, DEFAULT_SOURCE = 1, 5
#: Only a restart changes settings with these sources.
STATIC_SOURCES = frozenset({4, DEFAULT_SOURCE})
SET = 0
UNSET = 1
#: Ottla's own configurations of topics begin with this. They name places of one cluster, and Kafka rejects them.
OWN_PREFIX = "ottla."
_OF_ONE_BROKER = ("broker", "broker-logger")
_TOPICS_AT_ONCE = 500


async def describe_configs(
    cluster: ClusterClient, kind: str, name: str, keys: Sequence[str] | None, documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """Return the entries, each with value, source and synonyms."""
    resource = DescribeConfigsResource(
        resource_type=RESOURCE_TYPES[kind],
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=documentation)
    cluster.doing = f"reading the settings of {kind} {name}"
    result: DescribeConfigsResult = (await cluster.request(request, _node_for(kind, name))).results[0]
    check(f"settings of {kind} {name}".rstrip(), result.error_code, result.error_message)
    return sorted(result.configs, key=lambda entry: str(entry.name))


async def takes_own_configs(cluster: ClusterClient) -> bool:
    """Return whether topics of this cluster can have Ottla's own configurations, by whether its brokers describe one.

    Return True also if the user may not describe brokers.
    """
    await cluster.metadata([])
    broker, asked = str(min(cluster.brokers)), [f"{OWN_PREFIX}table.location"]
    try:
        return bool(await describe_configs(cluster, "broker", broker, asked))
    except ClusterError:
        return True


async def describe_topics_config(cluster: ClusterClient, topics: Sequence[str], key: str) -> dict[str, str]:
    """Return the value of one setting for each topic that is still there."""
    values: dict[str, str] = {}
    for first in range(0, len(topics), _TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(resource_type=RESOURCE_TYPES["topic"], resource_name=name, configuration_keys=[key])
            for name in topics[first : first + _TOPICS_AT_ONCE]
        ]
        cluster.doing = f"reading {key} of the topics"
        response: DescribeConfigsResponse = await cluster.request(DescribeConfigsRequest(resources=resources))
        for result in response.results:
            if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(f"settings of topic {result.resource_name}", result.error_code, result.error_message)
            values[result.resource_name] = str(result.configs[0].value)
    return values


async def describe_many(cluster: ClusterClient, places: Sequence[tuple[str, str]]) -> list[DescribeConfigsResult]:
    """Return the entries of several topics and brokers, by kind and name, without synonyms.

    A topic that is gone, a broker that does not answer and a resource that the user may not describe are left out.
    """
    by_node: dict[int | None, list[DescribeConfigsResource]] = {}
    for kind, name in places:
        row = DescribeConfigsResource(RESOURCE_TYPES[kind], name, None)
        by_node.setdefault(_node_for(kind, name), []).append(row)
    found: list[DescribeConfigsResult] = []
    for node, resources in by_node.items():
        cluster.doing = "reading settings"
        try:
            response: DescribeConfigsResponse = await cluster.request(DescribeConfigsRequest(resources), node)
        except ClusterError:
            continue
        found += [result for result in response.results if not result.error_code]
    return found


async def alter_configs(
    cluster: ClusterClient, kind: str, name: str, changes: Mapping[str, str | None], validate_only: bool = False
) -> None:
    """Set each key to its value, or remove the setting where that is None."""
    rows = [
        AlterableConfig(name=key, config_operation=UNSET if value is None else SET, value=value)
        for key, value in changes.items()
    ]
    resource = AlterConfigsResource(resource_type=RESOURCE_TYPES[kind], resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    cluster.doing = f"changing the settings of {kind} {name}"
    result = (await cluster.request(request, _node_for(kind, name))).responses[0]
    check(f"settings of {kind} {name}".rstrip(), result.error_code, result.error_message)


async def list_resources(cluster: ClusterClient, kind: str) -> list[str]:
    """Return the names of groups or client metrics that have settings (KIP-1142)."""
    cluster.doing = f"listing the settings of {kind}"
    request = ListConfigResourcesRequest(resource_types=[RESOURCE_TYPES[kind]])
    response = await cluster.request(request)
    check(f"settings of {kind}", response.error_code)
    return sorted(row.resource_name for row in response.config_resources)


def _node_for(kind: str, name: str) -> int | None:
    """Return the broker that the request has to go to: a broker's settings only that broker knows, all others any broker."""
    return int(name) if kind in _OF_ONE_BROKER and name else None


def differing(
    one: Sequence[DescribeConfigsResourceResult], other: Sequence[DescribeConfigsResourceResult]
) -> dict[str, tuple[str | None, str | None]]:
    """Return the settings whose values differ between two resources, with both values. A resource without the setting has None."""
    left, right = ({entry.name: entry.value for entry in entries} for entries in (one, other))
    pairs = {name: (left.get(name), right.get(name)) for name in sorted(left.keys() | right.keys())}
    return {name: values for name, values in pairs.items() if values[0] != values[1]}
