"""Spark's errors in words for a user: a table of its messages, their meaning and the remedy."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError

#: Patterns for the text of an exception and its causes; the first row that matches decides.
MEANINGS = (
    (r"UNKNOWN_TOPIC_OR_PARTITION|UnknownTopicOrPartition|does not exist\b.*topic|This server does not host this topic",
     "a topic of the source does not exist", "create it, or correct kafka.events, [source] subscribe or assign"),
    (r"No resolvable bootstrap urls|UnknownHostException",
     "the name in kafka.bootstrap_servers cannot be resolved", "correct it; in compose use the service's name and its internal listener"),
    (r"Timed out waiting (for|to)|TimeoutException|DisconnectException|could not be established|BrokerNotAvailable",
     "the cluster does not answer in time", "check kafka.bootstrap_servers and that the advertised listeners can be reached from here"),
    (r"KAFKA_DATA_LOSS|data may have been lost|OffsetOutOfRange|Some data may|incorrectOffset|PARTITION_OFFSET_CHANGED",
     "offsets that were to be read are gone: retention was faster than the query, or the topic was created again",
     "set source.fail_on_data_loss = false to continue with the existing records, or begin with another checkpoint"),
    (r"must specify all TopicPartitions|don't match what are assigned",
     "JSON offsets must name an offset for every partition", "add the missing ones: -2 is earliest, -1 latest"),
    (r"DATA_SOURCE_NOT_FOUND.*kafka|Failed to find data source: kafka|STREAMING_CONNECTOR",
     "the Kafka connector is not there", "make spark-jars, or spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:<version of Spark>"),
    (r"SaslAuthentication|Authentication failed", "the cluster rejects the login", "check [kafka.options] sasl.*"),
    (r"AuthorizationException", "the user may not read or write a topic, or use the group",
     "grant Read, Write, Describe; groups begin with source.group_id_prefix"),
)  # fmt: skip


def explained(error: Exception, config: Config) -> PipelineError:
    """Return one line for users. The complete text goes to a file in the folder of the results."""
    text = str(error)
    path = Path(config.path("error.log"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(traceback.format_exception(error)))
    for pattern, what, remedy in MEANINGS:
        if re.search(pattern, text, re.DOTALL):
            where = f"bootstrap {config.kafka.bootstrap_servers}"
            return PipelineError(f"{what} ({where}): {first_line(text)}", remedy=f"{remedy} (all of it: {path})")
    return PipelineError(f"Spark failed: {first_line(text)}", remedy=f"all of it is in {path}")


def first_line(text: str) -> str:
    """Return the message without the call that py4j prints before it."""
    lines = [line.strip(": ") for line in text.splitlines() if line.strip(": ")]
    said = [line for line in lines if not line.startswith("An error occurred while calling")]
    return said[0][:240] if said else "it gave no reason"
