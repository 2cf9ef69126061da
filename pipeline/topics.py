"""Topics the pipeline writes to, made when they are missing, and Kafka client settings in librdkafka's spelling."""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from pipeline.config import Config
from pipeline.errors import PipelineError

ANSWER_SECONDS_MAX = 10
COMPACTED = {"cleanup.policy": "compact"}
#: Java clients configure SASL by one line of JAAS; librdkafka wants the parts. What has no counterpart stays out.
JAVA_ONLY = (
    "sasl.jaas.config",
    "max.poll.records",
    "isolation.level",
    "ssl.truststore.location",
    "ssl.truststore.password",
)


def client_settings(config: Config) -> dict[str, Any]:
    options = {name: value for name, value in config.kafka.options.items() if name not in JAVA_ONLY}
    return {"bootstrap.servers": config.kafka.bootstrap_servers, "log_level": 2, **options}


def wanted(config: Config) -> dict[str, dict[str, str]]:
    kafka = config.kafka
    return {kafka.events: {}, kafka.dead_letters: {}, kafka.pages: COMPACTED, kafka.sessions: COMPACTED}


def ensure(config: Config) -> None:
    """Creates the missing topics; the events topic too, or Spark would end on an unknown one."""
    admin = AdminClient(client_settings(config))
    try:
        existing = admin.list_topics(timeout=ANSWER_SECONDS_MAX).topics
    except KafkaException as error:
        raise unreachable(config, error.args[0].str()) from None
    missing = [
        NewTopic(name, config.kafka.partitions, config.kafka.replication_factor, config=settings)
        for name, settings in wanted(config).items()
        if name not in existing
    ]
    for name, future in (admin.create_topics(missing) if missing else {}).items():
        try:
            future.result(ANSWER_SECONDS_MAX)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineError(
                    f"cannot create topic {name}: {error.args[0].str()}",
                    remedy="create it yourself, or correct [kafka]",
                ) from None


def unreachable(config: Config, cause: str) -> PipelineError:
    return PipelineError(
        f"no broker answers at {config.kafka.bootstrap_servers} ({cause})",
        remedy="check kafka.bootstrap_servers, and that the advertised listener of the cluster can be reached from here",
    )
