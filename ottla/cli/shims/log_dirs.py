"""kafka-log-dirs: show the log directories of brokers with the sizes of their replicas, as one line of JSON."""

from __future__ import annotations

import argparse
import json
import sys

from ottla.cli.shims.exceptions import exception_name, reason
from ottla.cli.shims.tool import ToolParser, Unusable, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_log_dirs
from ottla.client.failures import Failure

WITHOUT_EFFECT = {"describe": "It is the one action, which the tool asks for."}


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-log-dirs", "This tool helps to query log directory usage on the specified brokers.")
    parser.texts("bootstrap-server", "command-config")
    parser.flags("describe")
    parser.add_argument("--topic-list", default="")
    parser.add_argument("--broker-list", default="")
    options = parser.parse(arguments)
    parser.require(options, "describe")
    try:
        return with_cluster(options, lambda cluster: show(cluster, options))
    except Unusable as wrong:
        print(wrong, file=sys.stderr)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
    return 1


async def show(cluster: ClusterClient, options: argparse.Namespace) -> int:
    await cluster.metadata([])
    known = sorted(cluster.brokers)
    try:
        wanted = sorted({int(text) for text in options.broker_list.split(",") if text}) or known
    except ValueError:
        wrong = next(text for text in options.broker_list.split(",") if not text.strip().lstrip("+-").isdecimal())
        raise Unusable(f'For input string: "{wrong}"') from None
    if unknown := [broker for broker in wanted if broker not in known]:
        raise Unusable(
            f"ERROR: The given brokers do not exist from --broker-list: {_joined(unknown)}. "
            f"Current existent brokers: {_joined(known)}"
        )
    print("Querying brokers for log directories information")
    names = {name for name in options.topic_list.split(",") if name}
    brokers = [{"broker": broker, "logDirs": await _directories(cluster, broker, names)} for broker in wanted]
    print(f"Received log directory information from brokers {_joined(wanted)}")
    print(json.dumps({"brokers": brokers, "version": 1}, separators=(",", ":")))
    return 0


def _joined(brokers: list[int]) -> str:
    return ",".join(map(str, brokers))


async def _directories(cluster: ClusterClient, broker: int, names: set[str]) -> list[dict[str, object]]:
    return [
        {
            "partitions": [
                {
                    "partition": f"{topic.name}-{part.partition_index}",
                    "size": part.partition_size,
                    "offsetLag": part.offset_lag,
                    "isFuture": part.is_future_key,
                }
                for topic in row.topics
                if not names or topic.name in names
                for part in topic.partitions
            ],
            "error": exception_name(row.error_code) if row.error_code else None,
            "logDir": row.log_dir,
        }
        for row in await describe_log_dirs(cluster, broker)
    ]
