"""kafka-python: a producer, a group, and the admin client."""

from checks import BOOTSTRAP, RUN, check, equal, run
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic

TOPIC, GROUP = f"kafka-python-{RUN}", f"kafka-python-{RUN}"


def main() -> None:
    with check("create a topic"):
        admin = KafkaAdminClient(bootstrap_servers=BOOTSTRAP)
        admin.create_topics([NewTopic(TOPIC, 1, 1)])
        equal(TOPIC in admin.list_topics(), True)
        admin.close()
    with check("produce with keys and headers"):
        producer = KafkaProducer(bootstrap_servers=BOOTSTRAP, compression_type="gzip")
        for number in range(10):
            producer.send(TOPIC, b"%d" % number, b"key", headers=[("h", b"1")]).get(30)
        producer.close()
    with check("a group reads, and goes on where it stopped"):
        for begin, count in ((0, 6), (6, 4)):
            consumer = KafkaConsumer(
                TOPIC, bootstrap_servers=BOOTSTRAP, group_id=GROUP, auto_offset_reset="earliest",
                enable_auto_commit=False, max_poll_records=count,
            )  # fmt: skip
            found: list[bytes] = []
            while len(found) < count:
                found += [record.value for records in consumer.poll(1000).values() for record in records]
            consumer.commit()
            consumer.close()
            equal(found, [b"%d" % number for number in range(begin, begin + count)])


run(main)
