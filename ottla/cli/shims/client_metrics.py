"""kafka-client-metrics: the metrics that clients push to the brokers (KIP-714)."""

from __future__ import annotations

import argparse
import re
import sys

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import ToolParser, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.configs import alter_configs, describe_configs, list_resources
from ottla.client.failures import Failure
from ottla.protocol.primitives import new_uuid, uuid_to_str

KIND = "client-metrics"
ACTIONS = ("alter", "delete", "describe", "list")
#: The options that set a property, and the properties.
PROPERTIES = {"metrics": "metrics", "interval": "interval.ms", "match": "match"}
DYNAMIC_SOURCE = 7


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-client-metrics", "Manipulate and describe client metrics in the cluster.")
    parser.missing_bootstrap = "--bootstrap-server must be specified."
    parser.add_bootstrap()
    parser.flags(*ACTIONS, "generate-name")
    parser.texts("name", *PROPERTIES)
    options = parser.parse(arguments)
    if sum(getattr(options, action) for action in ACTIONS) != 1:
        parser.usage_error("Command must include exactly one action: --alter, --delete, --describe or --list.")
    if options.alter and bool(options.name) == options.generate_name:
        parser.usage_error("One of --name or --generate-name must be specified with --alter.")
    if options.delete and not options.name:
        parser.usage_error("A client metrics resource name must be specified with --delete.")
    for action in ("delete", "describe", "list"):
        parser.forbid(options, action, "generate-name", *sorted(PROPERTIES))
    parser.forbid(options, "list", "name")
    if options.interval and not re.fullmatch(r"[+-]?[0-9]+", options.interval):
        print("Invalid interval value. Enter an integer, or leave empty to reset.", file=sys.stderr)
        return 1
    run = next(RUN[action] for action in ACTIONS if getattr(options, action))
    try:
        return with_cluster(options, lambda cluster: run(cluster, options))
    except Failure as failure:
        print(f"Error while executing client metrics command : {reason(failure)}")
        return 1


async def _alter(cluster: ClusterClient, options: argparse.Namespace) -> int:
    """Set the given properties; an empty value removes a property."""
    name = options.name or uuid_to_str(new_uuid(cluster.world.rng))
    changes = {
        key: getattr(options, option) or None
        for option, key in PROPERTIES.items()
        if getattr(options, option) is not None
    }
    await alter_configs(cluster, KIND, name, changes)
    print(f"Altered client metrics config for {name}.")
    return 0


async def _delete(cluster: ClusterClient, options: argparse.Namespace) -> int:
    present = await describe_configs(cluster, KIND, options.name, None)
    await alter_configs(cluster, KIND, options.name, {entry.name: None for entry in present})
    print(f"Deleted client metrics config for {options.name}.")
    return 0


async def _describe(cluster: ClusterClient, options: argparse.Namespace) -> int:
    known = await list_resources(cluster, KIND)
    if options.name and options.name not in known:
        print(f"The client metric resource {options.name} doesn't exist and doesn't have dynamic config.")
        return 0
    for name in [options.name] if options.name else known:
        print(f"Client metrics configs for {name} are:")
        for entry in await describe_configs(cluster, KIND, name, None):
            if entry.config_source == DYNAMIC_SOURCE:
                print(f"  {entry.name}={entry.value}")
    return 0


async def _list(cluster: ClusterClient, options: argparse.Namespace) -> int:
    for name in await list_resources(cluster, KIND):
        print(name)
    return 0


RUN = {"alter": _alter, "delete": _delete, "describe": _describe, "list": _list}
