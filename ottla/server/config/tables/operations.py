"""Quotas, policies, metrics and telemetry."""

from __future__ import annotations

from ottla.server.config.columns import CLASS, CLUSTER_WIDE, INT, LIST, LONG, LOW, STRING
from ottla.server.config.key import ConfigKey, table
from ottla.server.config.validators import at_least, names

# fmt: off
OPERATIONS = table(
    ConfigKey("quota.window.num", INT, 11, LOW, "Samples kept of client quotas.", at_least(1)),
    ConfigKey("quota.window.size.seconds", INT, 1, LOW, "The time of one sample of client quotas.", at_least(1)),
    ConfigKey("replication.quota.window.num", INT, 11, LOW, "Samples kept of replication quotas.", at_least(1)),
    ConfigKey("replication.quota.window.size.seconds", INT, 1, LOW,
        "The time of one sample of replication quotas.", at_least(1)),
    ConfigKey("alter.log.dirs.replication.quota.window.num", INT, 11, LOW,
        "Samples kept of the quota of moves between log directories.", at_least(1)),
    ConfigKey("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, LOW,
        "The time of one sample of that quota.", at_least(1)),
    ConfigKey("controller.quota.window.num", INT, 11, LOW,
        "Samples kept of the controller mutation quota.", at_least(1)),
    ConfigKey("controller.quota.window.size.seconds", INT, 1, LOW,
        "The time of one sample of the controller mutation quota.", at_least(1)),
    ConfigKey("client.quota.callback.class", CLASS, None, LOW,
        "What decides client quotas, by class name; Kafka's own rules by default."),
    ConfigKey("create.topic.policy.class.name", CLASS, None, LOW, "What may refuse to create topics, by class name."),
    ConfigKey("alter.config.policy.class.name", CLASS, None, LOW,
        "What may refuse to change configurations, by class name."),
    ConfigKey("metric.reporters", LIST, ["org.apache.kafka.common.metrics.JmxReporter"], LOW,
        "Accepted for compatibility: metrics are exposed for Prometheus.", names(), CLUSTER_WIDE),
    ConfigKey("metrics.num.samples", INT, 2, LOW, "Samples kept to compute metrics.", at_least(1)),
    ConfigKey("metrics.sample.window.ms", LONG, 30_000, LOW,
        "The time over which a sample of a metric is taken.", at_least(1)),
    ConfigKey("metrics.recording.level", STRING, "INFO", LOW, "The level of metrics: INFO, DEBUG or TRACE."),
    ConfigKey("kafka.metrics.reporters", LIST, [], LOW,
        "Accepted for compatibility: metrics are exposed for Prometheus.", names()),
    ConfigKey("kafka.metrics.polling.interval.secs", INT, 10, LOW,
        "Accepted for compatibility: metrics are read at a scrape.", at_least(1)),
    ConfigKey("telemetry.max.bytes", INT, 1_048_576, LOW, "The largest push of client metrics.", at_least(1)),
    ConfigKey("config.providers", LIST, [], LOW, "Names of providers that values may refer to.", names(), CLUSTER_WIDE),
)
# fmt: on
