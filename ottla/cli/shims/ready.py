"""The command `cub kafka-ready [-b SERVERS] N SECONDS`: it exits with 0 once N brokers are in the cluster, or with 1 when the
time is over.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from ottla.cli.shims.tool import client_properties, int32, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_cluster
from ottla.client.failures import Failure

RETRY_S = 0.5


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="kafka-ready")
    parser.add_argument("-b", "--bootstrap", "--bootstrap_server", default="localhost:9092", dest="bootstrap_server")
    parser.add_argument("-c", "--config", dest="command_config")
    parser.add_argument("-s", "--security-protocol")
    parser.add_argument("brokers", type=int32)
    parser.add_argument("seconds", type=int32)
    options = parser.parse_args(arguments)
    options.client_properties = client_properties(options.command_config)
    if options.security_protocol is not None:
        options.client_properties["security.protocol"] = options.security_protocol

    async def wait(cluster: ClusterClient) -> int:
        while True:
            try:
                found = [row for row in (await describe_cluster(cluster)).brokers if not row.is_fenced]
            except Failure:
                found = []
            if len(found) >= options.brokers:
                return 0
            await asyncio.sleep(RETRY_S)

    try:
        return with_cluster(options, wait, options.seconds * 1000)
    except Failure:
        print(f"Expected {options.brokers} brokers but not all were there within {options.seconds} s", file=sys.stderr)
        return 1
