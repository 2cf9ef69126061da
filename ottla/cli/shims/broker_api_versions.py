"""kafka-broker-api-versions: every broker's address and the versions it serves.

Scripts mostly use it to find out whether a broker responds.
"""

from __future__ import annotations

import sys

from ottla.cli.shims.exceptions import reason
from ottla.cli.shims.tool import ToolParser, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import describe_cluster
from ottla.client.failures import Failure
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.api_versions import ApiVersionsRequest


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-broker-api-versions", "Retrieve the versions of the APIs that brokers serve.")
    parser.add_bootstrap()
    options = parser.parse(arguments)
    try:
        return with_cluster(options, show)
    except Failure as failure:
        print(reason(failure), file=sys.stderr)
        return 1


async def show(cluster: ClusterClient) -> int:
    described = await describe_cluster(cluster)
    await cluster.metadata([])
    for broker in sorted(described.brokers, key=lambda row: row.broker_id):
        head = f"{broker.host}:{broker.port} (id: {broker.broker_id} rack: {broker.rack or 'null'} "
        head += f"isFenced: {str(broker.is_fenced).lower()}) -> ("
        if broker.is_fenced:
            print(f"{head}\n)")
            continue
        request = ApiVersionsRequest(client_software_name="ottla", client_software_version="1")
        response = await cluster.request(request, broker.broker_id)
        rows = [
            _row(api.api_key, api.min_version, api.max_version)
            for api in sorted(response.api_keys, key=lambda a: a.api_key)
        ]
        print(head + "\n\t" + ",\n\t".join(rows) + "\n)")
    return 0


def _row(key: int, low: int, high: int) -> str:
    if key not in ApiKey._value2member_map_:
        return f"UNKNOWN({key}): {low} to {high}"
    api = APIS[ApiKey(key)]
    served = f"{low}" if low == high else f"{low} to {high}"
    usable = min(high, api.max_version)
    return f"{api.name}({key}): {served} [usable: {usable if usable >= low else 'UNSUPPORTED'}]"
