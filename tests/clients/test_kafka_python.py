"""The calls of a typical kafka-python programme: futures with callbacks, snappy batches, a JSON consumer with manual commits."""

from __future__ import annotations

import json

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic


def test_an_idempotent_producer_with_callbacks_feeds_a_consumer_that_commits_by_hand(
    bootstrap: str, topic: str
) -> None:
    producer = KafkaProducer(
        bootstrap_servers=[bootstrap],
        acks="all",
        enable_idempotence=True,
        max_in_flight_requests_per_connection=5,
        retries=3,
        compression_type="snappy",
        linger_ms=10,
        batch_size=32768,
    )
    sent, failed = [], []
    for i in range(50):
        future = producer.send(
            topic=topic,
            key=f"ORD-{i % 5}".encode(),
            value=json.dumps({"order": i}).encode(),
            headers=[("event_type", b"order_created")],
        )
        future.add_callback(sent.append)
        future.add_errback(failed.append)
    producer.flush(timeout=30)
    producer.close()
    assert (len(sent), failed) == (50, [])

    def read(count: int) -> list[dict[str, int]]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=[bootstrap],
            group_id=f"{topic}-g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
            session_timeout_ms=30000,
            heartbeat_interval_ms=1000,
            value_deserializer=lambda data: json.loads(data.decode("utf-8")),
            key_deserializer=lambda data: data.decode("utf-8") if data else None,
        )
        got = []
        # A poll returns as soon as it has records. Its timeout is long because kafka-python 3.0.12 forgets an assignment
        # for good if the timeout ends between the answer to SyncGroup and the completion of the rebalance.
        while len(got) < count:
            records = consumer.poll(timeout_ms=30_000)
            assert records, f"{len(got)} of {count} records were read"
            got += [message.value for messages in records.values() for message in messages]
        consumer.commit()
        consumer.close()
        return got

    first = read(50)
    assert sorted(event["order"] for event in first) == list(range(50))
    producer = KafkaProducer(bootstrap_servers=[bootstrap], acks=1)
    producer.send(topic, value=b'{"order": 50}').get(10)
    producer.close()
    assert read(1) == [{"order": 50}], "the second consumer did not continue after the commit"


def test_at_most_once_sends_need_no_acknowledgement(bootstrap: str, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=[bootstrap], acks=0, retries=0, enable_idempotence=False)
    for i in range(20):
        producer.send(topic, value=str(i).encode(), partition=0)
    producer.flush(10)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=[bootstrap], auto_offset_reset="earliest", consumer_timeout_ms=30000)
    consumer.assign([TopicPartition(topic, 0)])
    assert [next(consumer).value for _ in range(20)] == [str(i).encode() for i in range(20)]
    consumer.close()


def test_admin_creates_lists_and_deletes_topics(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=[bootstrap])
    admin.create_topics([NewTopic(topic, num_partitions=2, replication_factor=1)])
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    admin.close()
