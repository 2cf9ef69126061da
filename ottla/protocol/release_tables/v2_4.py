"""Apache Kafka 2.4.1: its APIs, features and configurations, made by `python -m tools.releases 2.4.1`."""

TABLE = """
[broker apis]
0:0-8 1:0-11 2:0-5 3:0-9 4:0-4 5:0-2 6:0-6 7:0-3 8:0-8 9:0-6 10:0-3 11:0-6 12:0-4 13:0-4 14:0-4 15:0-5 16:0-3 17:0-1
18:0-3 19:0-5 20:0-4 21:0-1 22:0-2 23:0-3 24:0-1 25:0-1 26:0-1 27:0-0 28:0-2 29:0-1 30:0-1 31:0-1 32:0-2 33:0-1 34:0-1
35:0-1 36:0-1 37:0-1 38:0-2 39:0-1 40:0-1 41:0-1 42:0-2 43:0-2 44:0-1 45:0-0 46:0-0 47:0-0
[broker dynamic]
advertised.listeners log.message.downconversion.enable log.message.timestamp.difference.max.ms
[broker lacks]
add.partitions.to.txn.retry.backoff.max.ms add.partitions.to.txn.retry.backoff.ms broker.heartbeat.interval.ms
broker.session.timeout.ms compression.gzip.level compression.lz4.level compression.zstd.level config.providers
controller.listener.names controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quorum.append.linger.ms controller.quorum.auto.join.enable controller.quorum.bootstrap.servers
controller.quorum.election.backoff.max.ms controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms controller.quorum.request.timeout.ms
controller.quorum.retry.backoff.ms controller.quorum.voters controller.quota.window.num
controller.quota.window.size.seconds cordoned.log.dirs delegation.token.secret.key early.start.listeners
errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix fetch.max.bytes
follower.fetch.last.tiered.offset.enable group.consumer.assignment.interval.ms group.consumer.assignor.offload.enable
group.consumer.assignors group.consumer.heartbeat.interval.ms group.consumer.max.assignment.interval.ms
group.consumer.max.heartbeat.interval.ms group.consumer.max.session.timeout.ms group.consumer.max.size
group.consumer.migration.policy group.consumer.min.assignment.interval.ms group.consumer.min.heartbeat.interval.ms
group.consumer.min.session.timeout.ms group.consumer.regex.refresh.interval.ms group.consumer.session.timeout.ms
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.rebalance.protocols group.coordinator.threads group.share.assignment.interval.ms
group.share.assignor.offload.enable group.share.assignors group.share.delivery.count.limit
group.share.dlq.manager.class.name group.share.heartbeat.interval.ms group.share.initialize.retry.interval.ms
group.share.max.assignment.interval.ms group.share.max.delivery.count.limit group.share.max.heartbeat.interval.ms
group.share.max.partition.max.record.locks group.share.max.record.lock.duration.ms group.share.max.session.timeout.ms
group.share.max.share.sessions group.share.max.size group.share.min.assignment.interval.ms
group.share.min.delivery.count.limit group.share.min.heartbeat.interval.ms group.share.min.partition.max.record.locks
group.share.min.record.lock.duration.ms group.share.min.session.timeout.ms group.share.partition.max.record.locks
group.share.persister.class.name group.share.record.lock.duration.ms group.share.session.timeout.ms
group.streams.acceptable.recovery.lag group.streams.assignment.interval.ms group.streams.assignor.offload.enable
group.streams.assignors group.streams.heartbeat.interval.ms group.streams.initial.rebalance.delay.ms
group.streams.max.assignment.interval.ms group.streams.max.heartbeat.interval.ms group.streams.max.session.timeout.ms
group.streams.max.size group.streams.max.standby.replicas group.streams.max.warmup.replicas
group.streams.min.assignment.interval.ms group.streams.min.heartbeat.interval.ms group.streams.min.session.timeout.ms
group.streams.min.task.offset.interval.ms group.streams.num.standby.replicas group.streams.num.warmup.replicas
group.streams.rack.aware.assignment.tags group.streams.session.timeout.ms group.streams.task.offset.interval.ms
group.streams.topology.description.plugin.class initial.broker.registration.timeout.ms
internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes internal.metadata.max.batch.size.in.bytes
log.dir.failure.timeout.ms log.initial.task.delay.ms log.local.retention.bytes log.local.retention.ms
log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.remote.copy.lag.bytes
log.remote.copy.lag.ms max.connection.creation.rate max.decompressed.message.bytes max.request.partition.size.limit
metadata.log.dir metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
metadata.log.segment.bytes metadata.log.segment.ms metadata.max.idle.interval.ms metadata.max.retention.bytes
metadata.max.retention.ms node.id process.roles producer.id.expiration.check.interval.ms producer.id.expiration.ms
remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.index.file.cache.ttl.ms remote.log.manager.copier.thread.pool.size
remote.log.manager.copy.max.bytes.per.second remote.log.manager.copy.quota.window.num
remote.log.manager.copy.quota.window.size.seconds remote.log.manager.expiration.thread.pool.size
remote.log.manager.fetch.max.bytes.per.second remote.log.manager.fetch.quota.window.num
remote.log.manager.fetch.quota.window.size.seconds remote.log.manager.follower.thread.pool.size
remote.log.manager.task.interval.ms remote.log.manager.task.retry.backoff.max.ms
remote.log.manager.task.retry.backoff.ms remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks remote.log.reader.threads
remote.log.storage.manager.class.name remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
remote.log.storage.system.enable sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism.controller.protocol
sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.template.file sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.jwks.endpoint.refresh.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class sasl.oauthbearer.jwt.validator.class
sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
sasl.oauthbearer.token.endpoint.url sasl.server.max.receive.size server.max.startup.time.ms
share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes
share.coordinator.cold.partition.snapshot.interval.ms share.coordinator.load.buffer.size
share.coordinator.snapshot.update.records.per.snapshot share.coordinator.state.topic.compression.codec
share.coordinator.state.topic.min.isr share.coordinator.state.topic.num.partitions
share.coordinator.state.topic.prune.interval.ms share.coordinator.state.topic.replication.factor
share.coordinator.state.topic.segment.bytes share.coordinator.threads share.coordinator.write.timeout.ms
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms socket.listen.backlog.size ssl.allow.dn.changes ssl.allow.san.changes
ssl.engine.factory.class ssl.keystore.certificate.chain ssl.keystore.key ssl.truststore.certificates
telemetry.max.bytes transaction.partition.verification.enable transaction.two.phase.commit.enable
unclean.leader.election.interval.ms unstable.api.versions.enable unstable.feature.versions.enable
[topic lacks]
compression.gzip.level compression.lz4.level compression.zstd.level errors.deadletterqueue.group.enable
internal.segment.bytes local.retention.bytes local.retention.ms max.decompressed.message.bytes
message.timestamp.after.max.ms message.timestamp.before.max.ms remote.copy.lag.bytes remote.copy.lag.ms
remote.log.copy.disable remote.log.delete.on.disable remote.storage.enable
[group lacks]
consumer.assignment.interval.ms consumer.assignor.offload.enable consumer.heartbeat.interval.ms
consumer.session.timeout.ms errors.deadletterqueue.copy.record.enable errors.deadletterqueue.topic.name
share.assignment.interval.ms share.assignor.offload.enable share.auto.offset.reset share.delivery.count.limit
share.heartbeat.interval.ms share.isolation.level share.partition.max.record.locks share.record.lock.duration.ms
share.renew.acknowledge.enable share.session.timeout.ms streams.acceptable.recovery.lag streams.assignment.interval.ms
streams.assignor.name streams.assignor.offload.enable streams.heartbeat.interval.ms streams.initial.rebalance.delay.ms
streams.num.standby.replicas streams.num.warmup.replicas streams.rack.aware.assignment.tags streams.session.timeout.ms
streams.task.offset.interval.ms
[broker rows]
advertised.host.name STRING null
advertised.listeners STRING null
advertised.port INT null
broker.id.generation.enable BOOLEAN =true
control.plane.listener.name STRING null
controlled.shutdown.max.retries INT =3
controlled.shutdown.retry.backoff.ms LONG =5000
delegation.token.master.key PASSWORD null
host.name STRING =
inter.broker.protocol.version STRING =2.4-IV1
leader.imbalance.per.broker.percentage INT =10
listener.security.protocol.map STRING =PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
listeners STRING null
log.dir STRING =/tmp/kafka-logs
log.dirs STRING null
log.message.downconversion.enable BOOLEAN =true
log.message.format.version STRING =2.4-IV1
log.message.timestamp.difference.max.ms LONG =9223372036854775807
message.max.bytes INT =1000012
metric.reporters LIST =
num.recovery.threads.per.data.dir INT =1
offsets.commit.required.acks SHORT =-1
password.encoder.cipher.algorithm STRING =AES/CBC/PKCS5Padding
password.encoder.iterations INT =4096
password.encoder.key.length INT =128
password.encoder.keyfactory.algorithm STRING null
password.encoder.old.secret PASSWORD null
password.encoder.secret PASSWORD null
port INT =9092
principal.builder.class CLASS null
quota.consumer.default LONG =9223372036854775807
quota.producer.default LONG =9223372036854775807
replica.lag.time.max.ms LONG =10000
reserved.broker.max.id INT =1000
ssl.enabled.protocols LIST =TLSv1.2,TLSv1.1,TLSv1
ssl.protocol STRING =TLS
transaction.abort.timed.out.transaction.cleanup.interval.ms INT =60000
zookeeper.connect STRING REQUIRED
zookeeper.connection.timeout.ms INT null
zookeeper.max.in.flight.requests INT =10
zookeeper.session.timeout.ms INT =6000
zookeeper.set.acl BOOLEAN =false
zookeeper.sync.time.ms INT =2000
[topic rows]
max.message.bytes INT =1000012
message.downconversion.enable BOOLEAN =true
message.format.version STRING =2.4-IV1
message.timestamp.difference.max.ms LONG =9223372036854775807
"""
