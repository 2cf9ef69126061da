"""Apache Kafka 4.3.1: its APIs, features and configurations, made by `python -m tools.releases 4.3.1`."""

TABLE = """
[broker apis]
0:3-13 1:4-18 2:1-11 3:0-13 8:2-10 9:1-10 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5 15:0-6 16:0-5 17:0-1 18:0-4 19:2-7 20:1-6
21:0-2 22:0-5 23:2-4 24:0-5 25:0-4 26:0-5 27:1-2 28:0-5 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 34:1-2 35:1-5 36:0-2 37:0-3
38:1-3 39:1-2 40:1-2 41:1-3 42:0-2 43:0-2 44:0-1 45:0-1 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 55:0-2 57:0-2 60:0-2
61:0-0 64:0-0 65:0-0 66:0-2 68:0-1 69:0-1 71:0-0 72:0-0 74:0-1 75:0-0 76:1-1 77:1-1 78:1-2 79:1-2 80:0-1 81:0-0 83:0-0
84:0-0 85:0-1 86:0-0 87:0-1 88:0-0 89:0-0 90:0-1 91:0-0 92:0-0
[controller apis]
1:4-18 17:0-1 18:0-4 19:2-7 20:1-6 29:1-3 30:1-3 31:1-3 32:1-4 33:0-2 36:0-2 37:0-3 38:1-3 39:1-2 40:1-2 41:1-3 43:0-2
44:0-1 45:0-1 46:0-0 49:0-1 50:0-0 51:0-0 52:0-2 53:0-1 54:0-1 55:0-2 56:2-3 57:0-2 58:0-0 59:0-1 60:0-2 62:0-4 63:0-2
64:0-0 67:0-0 70:0-0 73:0-0 80:0-1 81:0-0 82:0-0
[unstable apis]
22:6-6
[features]
metadata.version:7-30 eligible.leader.replicas.version:0-1 group.version:0-1 kraft.version:0-1 share.version:0-1
streams.version:0-1 transaction.version:0-2
[unstable features]
metadata.version:31-31
[broker lacks]
errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
group.consumer.assignor.offload.enable group.share.assignor.offload.enable group.share.dlq.manager.class.name
group.streams.acceptable.recovery.lag group.streams.assignor.offload.enable group.streams.assignors
group.streams.max.warmup.replicas group.streams.min.task.offset.interval.ms group.streams.num.warmup.replicas
group.streams.rack.aware.assignment.tags group.streams.task.offset.interval.ms
group.streams.topology.description.plugin.class log.remote.copy.lag.bytes log.remote.copy.lag.ms
max.decompressed.message.bytes sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
[topic lacks]
errors.deadletterqueue.group.enable max.decompressed.message.bytes remote.copy.lag.bytes remote.copy.lag.ms
[group lacks]
consumer.assignor.offload.enable errors.deadletterqueue.copy.record.enable errors.deadletterqueue.topic.name
share.assignor.offload.enable streams.acceptable.recovery.lag streams.assignor.name streams.assignor.offload.enable
streams.num.warmup.replicas streams.rack.aware.assignment.tags streams.task.offset.interval.ms
"""
