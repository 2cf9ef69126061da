"""Transactions, and the state of share groups."""

from __future__ import annotations

from ottla.server.config.columns import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, MEDIUM, SHORT
from ottla.server.config.key import ConfigKey, table
from ottla.server.config.validators import at_least, between

# fmt: off
TRANSACTIONS = table(
    ConfigKey("transactional.id.expiration.ms", INT, 604_800_000, HIGH,
        "How long an idle transactional id is remembered.", at_least(1)),
    ConfigKey("transaction.max.timeout.ms", INT, 900_000, HIGH,
        "The longest transaction timeout a producer may ask for.", at_least(1)),
    ConfigKey("transaction.state.log.num.partitions", INT, 50, HIGH,
        "Partitions of the transaction topic; not to be changed later.", at_least(1)),
    ConfigKey("transaction.state.log.replication.factor", SHORT, 3, HIGH,
        "Replicas of the transaction topic.", at_least(1)),
    ConfigKey("transaction.state.log.min.isr", INT, 2, HIGH,
        "min.insync.replicas of the transaction topic.", at_least(1)),
    ConfigKey("transaction.state.log.segment.bytes", INT, 104_857_600, HIGH,
        "Segment size of the transaction topic; small ones load faster.", at_least(1)),
    ConfigKey("transaction.state.log.load.buffer.size", INT, 5_242_880, HIGH,
        "Bytes read at a time when the transaction topic is loaded.", at_least(1)),
    ConfigKey("transaction.abort.timed.out.transaction.cleanup.interval.ms", INT, 10_000, LOW,
        "How often transactions that ran out of time are looked for.", at_least(1)),
    ConfigKey("transaction.remove.expired.transaction.cleanup.interval.ms", INT, 3_600_000, LOW,
        "How often expired transactional ids are looked for.", at_least(1)),
    ConfigKey("transaction.partition.verification.enable", BOOLEAN, True, LOW,
        "Check with the coordinator that a partition belongs to the transaction before writing to it.", dynamic=CLUSTER_WIDE),
    ConfigKey("transaction.two.phase.commit.enable", BOOLEAN, False, LOW,
        "Allow producers to take part in a two-phase commit, whose transactions never time out."),
    ConfigKey("add.partitions.to.txn.retry.backoff.ms", INT, 20, HIGH,
        "The pause before a partition is added again while the last transaction still completes.", at_least(1)),
    ConfigKey("add.partitions.to.txn.retry.backoff.max.ms", INT, 100, HIGH,
        "How long adding a partition is tried while the last transaction still completes.", at_least(0)),
    ConfigKey("share.coordinator.state.topic.num.partitions", INT, 50, HIGH,
        "Partitions of the share state topic; not to be changed later.", at_least(1)),
    ConfigKey("share.coordinator.state.topic.replication.factor", SHORT, 3, HIGH,
        "Replicas of the share state topic.", at_least(1)),
    ConfigKey("share.coordinator.state.topic.min.isr", SHORT, 2, HIGH,
        "min.insync.replicas of the share state topic.", at_least(1)),
    ConfigKey("share.coordinator.state.topic.segment.bytes", INT, 104_857_600, HIGH,
        "Segment size of the share state topic.", at_least(1)),
    ConfigKey("share.coordinator.state.topic.compression.codec", INT, 0, HIGH,
        "Compression of the share state topic, as its number in a batch."),
    ConfigKey("share.coordinator.state.topic.prune.interval.ms", INT, 300_000, LOW,
        "How often records that are no longer needed are removed from the share state topic.", at_least(1), internal=True),
    ConfigKey("share.coordinator.load.buffer.size", INT, 5_242_880, HIGH,
        "Bytes read at a time when the share state topic is loaded.", at_least(1)),
    ConfigKey("share.coordinator.threads", INT, 1, MEDIUM,
        "Accepted for compatibility: coordinators run on the event loop.", at_least(1)),
    ConfigKey("share.coordinator.write.timeout.ms", INT, 5000, HIGH,
        "How long a write of share state waits for its replicas.", at_least(1)),
    ConfigKey("share.coordinator.append.linger.ms", INT, -1, MEDIUM,
        "How long the share coordinator gathers records before it writes them; -1 adapts to the load.", at_least(-1)),
    ConfigKey("share.coordinator.cached.buffer.max.bytes", INT, 1_048_588, MEDIUM,
        "The largest write buffer the share coordinator keeps.", at_least(524_288), CLUSTER_WIDE),
    ConfigKey("share.coordinator.snapshot.update.records.per.snapshot", INT, 500, MEDIUM,
        "Updates of a share partition between two of its snapshots.", between(0, 500)),
    ConfigKey("share.coordinator.cold.partition.snapshot.interval.ms", INT, 300_000, LOW,
        "How often share partitions that do not change are written as snapshots.", at_least(1), internal=True),
)
# fmt: on
