"""A program that runs inside a namespace: it produces and consumes with librdkafka through one bootstrap address, and prints
what came back.
"""

from __future__ import annotations

import sys
import time
import uuid

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

RECORDS = 50


def main(bootstrap: str, copies: int, security: dict[str, str]) -> int:
    topic = f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, **security})
    admin.create_topics([NewTopic(topic, 3, copies)])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 20_000, **security})
    failures: list[str] = []
    for number in range(RECORDS):
        producer.produce(topic, str(number), on_delivery=lambda error, _: error and failures.append(str(error)))
    left = producer.flush(25)
    group = {"group.id": topic, "auto.offset.reset": "earliest", "bootstrap.servers": bootstrap, **security}
    consumer = Consumer(group)
    consumer.subscribe([topic])
    read: set[bytes] = set()
    deadline = time.monotonic() + 25
    while len(read) < RECORDS and time.monotonic() < deadline:
        for message in consumer.consume(RECORDS, 0.5):
            if message.error() is None:
                read.add(message.value() or b"")
    consumer.close()
    print(f"failed {len(failures)} left {left} read {len(read)} {failures[:1]}")
    return 0 if not failures and not left and len(read) == RECORDS else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), dict(word.split("=", 1) for word in sys.argv[3:])))
