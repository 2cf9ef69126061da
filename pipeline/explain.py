"""Spark's errors in a Spark user's words: a table of what its messages mean and what to do."""

from __future__ import annotations

import re

from pipeline.config import Config
from pipeline.errors import PipelineError

#: What is looked for in the text of an exception and its causes; the first row that fits is the answer.
MEANINGS = (
    (r"UNKNOWN_TOPIC_OR_PARTITION|UnknownTopicOrPartition|does not exist\b.*topic|This server does not host this topic",
     "a topic of the source does not exist", "create it, or correct kafka.events, [source] subscribe or assign"),
    (r"No resolvable bootstrap urls|UnknownHostException",
     "the name in kafka.bootstrap_servers cannot be resolved", "correct it; in compose use the service's name and its internal listener"),
    (r"Timed out waiting (for|to)|TimeoutException|DisconnectException|could not be established|BrokerNotAvailable",
     "the cluster does not answer in time", "check kafka.bootstrap_servers and that the advertised listeners can be reached from here"),
    (r"KAFKA_DATA_LOSS|data may have been lost|OffsetOutOfRange|Some data may|incorrectOffset|PARTITION_OFFSET_CHANGED",
     "offsets that were to be read are gone: retention was faster than the query, or the topic was made anew",
     "set source.fail_on_data_loss = false to go on with what is there, or begin anew with another checkpoint"),
    (r"DATA_SOURCE_NOT_FOUND.*kafka|Failed to find data source: kafka|STREAMING_CONNECTOR",
     "the Kafka connector is not there", "make spark-jars, or spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:<version of Spark>"),
    (r"SaslAuthentication|Authentication failed", "the cluster refuses the login", "check [kafka.options] sasl.*"),
    (r"AuthorizationException", "the user may not read or write a topic, or use the group",
     "grant Read, Write, Describe; groups begin with source.group_id_prefix"),
)  # fmt: skip


def explained(error: BaseException, config: Config) -> PipelineError | None:
    """The error for people; None if nobody here knows it, and then it should be seen whole."""
    text = str(error)
    for pattern, what, remedy in MEANINGS:
        if re.search(pattern, text, re.DOTALL):
            return PipelineError(
                f"{what} (bootstrap {config.kafka.bootstrap_servers}): {first_line(text)}", remedy=remedy
            )
    return None


def first_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:240] if lines else ""
