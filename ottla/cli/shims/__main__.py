"""The entry point `python -m ottla.cli.shims kafka-topics ...`: which tool, by its name in Kafka's bin directory."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module

TOOLS = {
    "kafka-topics": "ottla.cli.shims.topics",
    "kafka-configs": "ottla.cli.shims.configs",
    "kafka-acls": "ottla.cli.shims.acls",
    "kafka-get-offsets": "ottla.cli.shims.get_offsets",
    "kafka-cluster": "ottla.cli.shims.cluster",
    "kafka-features": "ottla.cli.shims.features",
    "kafka-metadata-quorum": "ottla.cli.shims.metadata_quorum",
    "kafka-groups": "ottla.cli.shims.groups",
    "kafka-share-groups": "ottla.cli.shims.share_groups",
    "kafka-transactions": "ottla.cli.shims.transactions",
    "kafka-log-dirs": "ottla.cli.shims.log_dirs",
    "kafka-reassign-partitions": "ottla.cli.shims.reassign_partitions",
    "kafka-delete-records": "ottla.cli.shims.delete_records",
    "kafka-leader-election": "ottla.cli.shims.leader_election",
    "kafka-client-metrics": "ottla.cli.shims.client_metrics",
    "kafka-delegation-tokens": "ottla.cli.shims.delegation_tokens",
    "kafka-producer-perf-test": "ottla.cli.shims.producer_perf_test",
    "kafka-consumer-perf-test": "ottla.cli.shims.consumer_perf_test",
    "kafka-e2e-latency": "ottla.cli.shims.e2e_latency",
    "kafka-broker-api-versions": "ottla.cli.shims.broker_api_versions",
    "kafka-storage": "ottla.cli.shims.storage",
    "kafka-console-producer": "ottla.cli.shims.console_producer",
    "kafka-console-consumer": "ottla.cli.shims.console_consumer",
    "kafka-consumer-groups": "ottla.cli.shims.consumer_groups",
    "kafka-server-start": "ottla.cli.shims.server_start",
    "kafka-ready": "ottla.cli.shims.ready",
    "create-topics": "ottla.cli.shims.create_topics",
}


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0] not in TOOLS:
        print(f"which tool? one of {', '.join(TOOLS)}", file=sys.stderr)
        return 1
    try:
        code: int = import_module(TOOLS[arguments[0]]).main(list(arguments[1:]))
        sys.stdout.flush()
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
