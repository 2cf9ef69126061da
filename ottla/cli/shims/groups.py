"""kafka-groups: the groups of all types."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.shims.exceptions import execution_exception
from ottla.cli.shims.tool import ToolParser, given, table, with_cluster
from ottla.client.cluster import ClusterClient
from ottla.client.failures import Failure
from ottla.client.groups import list_groups

TYPES = ("classic", "consumer", "share", "streams")
FILTERS = ("consumer", "share", "streams", "group-type", "protocol")


def main(arguments: list[str]) -> int:
    parser = ToolParser("kafka-groups", "This tool helps to list groups of all types.")
    parser.missing_bootstrap = "Missing required option(s) [bootstrap-server]"
    parser.add_bootstrap()
    parser.flags("list", "consumer", "share", "streams")
    parser.texts("group-type", "protocol")
    options = parser.parse(arguments)
    if not options.list:
        parser.usage_error("Command must include exactly one action: --list.")
    for place, name in enumerate(("consumer", "share", "streams")):
        parser.forbid(options, name, *FILTERS[place + 1 :])
    if given(options, "group-type") and options.group_type.lower() not in TYPES:
        print("--group-type must be a valid group type.", file=sys.stderr)
        return 1
    try:
        return with_cluster(options, lambda cluster: show(cluster, options))
    except Failure as failure:
        print(execution_exception(failure), file=sys.stderr)
        return 1


async def show(cluster: ClusterClient, options: argparse.Namespace) -> int:
    rows = [("GROUP", "TYPE", "PROTOCOL")]
    for group in await list_groups(cluster):
        kind, protocol = group.group_type.lower(), group.protocol_type
        is_consumer = kind == "consumer" or (kind == "classic" and protocol in ("consumer", ""))
        passes = (
            (not options.consumer or is_consumer)
            and (not options.share or kind == "share")
            and (not options.streams or kind == "streams")
            and (options.group_type is None or kind == options.group_type.lower())
            and (options.protocol is None or protocol == options.protocol)
        )
        if passes:
            rows.append((group.group_id, kind.capitalize(), protocol))
    print("\n".join(table(rows, (20, 20, 20))))
    return 0
