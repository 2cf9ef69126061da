"""confluent-kafka (librdkafka): both group protocols, transactions, and the admin client."""

from checks import BOOTSTRAP, RUN, check, equal, run
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

TOPIC = f"confluent-{RUN}"


def read(count: int, group: str, **settings: object) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": BOOTSTRAP, "group.id": group, "auto.offset.reset": "earliest", **settings}
    )
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    try:
        for _ in range(60):
            values += [message.value() for message in consumer.consume(count, 0.5) if message.error() is None]
            if len(values) >= count:
                break
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    with check("create a topic, and describe its settings"):
        admin.create_topics([NewTopic(TOPIC, 1, config={"retention.ms": "12345"})])[TOPIC].result(30)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        equal(admin.describe_configs([resource])[resource].result(30)["retention.ms"].value, "12345")
    with check("an idempotent producer"):
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
        for number in range(10):
            producer.produce(TOPIC, str(number), "key", headers=[("h", b"1")])
        equal(producer.flush(30), 0)
    for protocol in ("classic", "consumer"):
        with check(f"a group by the protocol {protocol}"):
            values = read(10, f"{protocol}-{RUN}", **{"group.protocol": protocol})
            equal(values, [b"%d" % number for number in range(10)])
    with check("transactions"):
        producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": f"txn-{RUN}"})
        producer.init_transactions(30)
        for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            producer.produce(TOPIC, end.__name__)
            producer.flush(30)
            end(30)
        equal(read(12, f"committed-{RUN}")[10:], [b"commit_transaction"] * 2)


run(main)
