"""bytewax: a flow from one topic to another."""

from datetime import timedelta

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.testing import run_main
from checks import BOOTSTRAP, RUN, check, equal, run
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

SOURCE, TARGET = f"bytewax-in-{RUN}", f"bytewax-out-{RUN}"
COUNT = 1000


def main() -> None:
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    for done in admin.create_topics([NewTopic(name, 3) for name in (SOURCE, TARGET)]).values():
        done.result(30)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(COUNT):
        producer.produce(SOURCE, str(number), str(number))
    producer.flush(30)
    with check("messages from a source through a map to a sink: 1000"):
        flow = Dataflow("copy")
        stream = op.input("in", flow, KafkaSource([BOOTSTRAP], [SOURCE], tail=False))
        made = op.map("map", stream, lambda message: KafkaSinkMessage(message.key, b"<" + message.value + b">"))
        op.output("out", made, KafkaSink([BOOTSTRAP], TARGET))
        run_main(flow, epoch_interval=timedelta(seconds=1))
        consumer = Consumer(
            {"bootstrap.servers": BOOTSTRAP, "group.id": f"check-{RUN}", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([TARGET])
        values: list[bytes] = []
        for _ in range(60):
            values += [message.value() for message in consumer.consume(COUNT, 0.5) if message.error() is None]
            if len(values) >= COUNT:
                break
        consumer.close()
        equal(sorted(values), sorted(b"<%d>" % number for number in range(COUNT)))


run(main)
