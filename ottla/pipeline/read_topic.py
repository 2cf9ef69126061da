"""All records that a topic has now, read once from beginning to end, for the checks and the report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from ottla.pipeline import topics
from ottla.pipeline.config import Config
from ottla.pipeline.errors import PipelineError

ANSWER_SECONDS_MAX = 10
FAILOVER_SECONDS_MAX = 30
SETTINGS = {
    "group.id": "ottla-pipeline-check",
    "enable.auto.commit": False,
    "enable.partition.eof": False,
    "auto.offset.reset": "earliest",
}


class Record(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


def records(config: Config, topic: str) -> Iterator[Record]:
    """Yield the records up to the ends that the partitions had when reading began."""
    consumer = Consumer({**topics.client_settings(config), **SETTINGS})
    try:
        found = consumer.list_topics(topic, timeout=ANSWER_SECONDS_MAX).topics[topic]
        offsets = {
            partition: low_and_high(consumer, TopicPartition(topic, partition)) for partition in found.partitions
        }
        ends = {partition: high for partition, (low, high) in offsets.items() if high > low}
        consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
        while ends:
            message = consumer.poll(1)
            # Compaction leaves gaps, also at the end. So the position ends the loop, not the last record.
            if message is not None and message.error() is None and message.offset() < ends.get(message.partition(), 0):
                # Of headers with the same name the first one is the pipeline's: the record's own headers follow it.
                headers = dict(reversed(message.headers() or []))
                yield Record(message.partition(), message.offset(), message.key(), message.value(), headers)
            for position in consumer.position([TopicPartition(topic, partition) for partition in ends]):
                if position.offset >= ends[position.partition]:
                    del ends[position.partition]
    except KafkaException as error:
        raise topics.unreachable(config, error.args[0].str()) from None
    except KeyError:
        raise PipelineError(f"there is no topic {topic}", remedy="run the stages first") from None
    finally:
        consumer.close()


def ends(config: Config, topic: str) -> dict[int, int]:
    """Return the next offset of each partition."""
    consumer = Consumer({**topics.client_settings(config), **SETTINGS})
    try:
        found = consumer.list_topics(topic, timeout=ANSWER_SECONDS_MAX).topics[topic]
        return {
            partition: low_and_high(consumer, TopicPartition(topic, partition))[1] for partition in found.partitions
        }
    except KafkaException as error:
        raise topics.unreachable(config, error.args[0].str()) from None
    finally:
        consumer.close()


def dead_letters(config: Config) -> list[tuple[tuple[str, int, int], str]]:
    """Return the position of the record of each dead letter, and the reason. A letter that was sent twice occurs twice."""
    found = []
    for each in records(config, config.kafka.dead_letters):
        partition, offset = (int(each.headers[f"source.{name}"]) for name in ("partition", "offset"))
        position = each.headers["source.topic"].decode(), partition, offset
        found.append((position, each.headers["error.reason"].decode()))
    return found


def low_and_high(consumer: Consumer, partition: TopicPartition) -> tuple[int, int]:
    """Return the first and the next offset.

    While leadership moves the request is repeated, because librdkafka passes on the former leader's rejection.

    They are asked again while leadership moves: librdkafka hands on the rejection of the leader that was.
    """
    deadline = time.monotonic() + FAILOVER_SECONDS_MAX
    while True:
        try:
            low, high = consumer.get_watermark_offsets(partition, timeout=ANSWER_SECONDS_MAX)
            return low, high
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
