"""sentry-arroyo: its producer and its stream processor, whose strategy counts messages and commits."""

import time
from collections.abc import Mapping

from arroyo.backends.kafka import KafkaConsumer, KafkaPayload, KafkaProducer
from arroyo.backends.kafka.configuration import build_kafka_configuration, build_kafka_consumer_configuration
from arroyo.processing.processor import StreamProcessor
from arroyo.processing.strategies import CommitOffsets, ProcessingStrategy, ProcessingStrategyFactory, RunTask
from arroyo.types import Commit, Message, Partition, Topic
from checks import BOOTSTRAP, RUN, check, equal, run

TOPIC = Topic(f"arroyo-{RUN}")
COUNT = 200
seen: list[bytes] = []


class Counting(ProcessingStrategyFactory[KafkaPayload]):
    def create_with_partitions(
        self, commit: Commit, partitions: Mapping[Partition, int]
    ) -> ProcessingStrategy[KafkaPayload]:
        def count(message: Message[KafkaPayload]) -> Message[KafkaPayload]:
            seen.append(message.payload.value)
            return message

        return RunTask(count, CommitOffsets(commit))


def main() -> None:
    with check("produce"):
        producer = KafkaProducer(build_kafka_configuration({}, bootstrap_servers=BOOTSTRAP.split(",")))
        futures = [producer.produce(TOPIC, KafkaPayload(None, b"%d" % number, [])) for number in range(COUNT)]
        for future in futures:
            future.result(30)
        producer.close().result(30)
    with check("a stream processor sees each message once and commits"):
        settings = build_kafka_consumer_configuration(
            {}, bootstrap_servers=BOOTSTRAP.split(","), group_id=f"arroyo-{RUN}", auto_offset_reset="earliest"
        )
        processor = StreamProcessor(KafkaConsumer(settings), TOPIC, Counting())
        end = time.monotonic() + 60
        while len(seen) < COUNT and time.monotonic() < end:
            processor._run_once()
        processor._shutdown()
        equal(sorted(seen), sorted(b"%d" % number for number in range(COUNT)))


run(main)
