"""The stand-ins for Kafka's command-line tools: the names of their launchers, and their modules.

The table stands outside of both packages, `commands` and `shims`, because both use it: `ottla shims` writes launchers of all
names, and `python -m ottla.cli.shims` runs the module of one name.
"""

from __future__ import annotations

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
    "kafka-streams-groups": "ottla.cli.shims.streams_groups",
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
    "kafka-verifiable-producer": "ottla.cli.shims.verifiable_producer",
    "kafka-broker-api-versions": "ottla.cli.shims.broker_api_versions",
    "kafka-storage": "ottla.cli.shims.storage",
    "kafka-replica-verification": "ottla.cli.shims.replica_verification",
    "kafka-metadata-shell": "ottla.cli.shims.metadata_shell",
    "kafka-dump-log": "ottla.cli.shims.dump_log",
    "kafka-console-producer": "ottla.cli.shims.console_producer",
    "kafka-console-consumer": "ottla.cli.shims.console_consumer",
    "kafka-console-share-consumer": "ottla.cli.shims.console_share_consumer",
    "kafka-share-consumer-perf-test": "ottla.cli.shims.share_consumer_perf_test",
    "kafka-verifiable-share-consumer": "ottla.cli.shims.verifiable_share_consumer",
    "kafka-verifiable-consumer": "ottla.cli.shims.verifiable_consumer",
    "kafka-consumer-groups": "ottla.cli.shims.consumer_groups",
    "kafka-server-start": "ottla.cli.shims.server_start",
    "kafka-ready": "ottla.cli.shims.ready",
    "create-topics": "ottla.cli.shims.create_topics",
}
