"""The files of a log directory that the sessions of kafka-dump-log and kafka-metadata-shell read: written by Apache Kafka 4.3.1.

python -m tests.ottla.cli.shims.recorded.log_files    writes them again (with a JDK and Maven), into `files/`
"""

from __future__ import annotations

import shutil

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ottla.cli.shims.recorded import FILES
from tests.ports import free_base_port
from tools.apache_kafka import ApacheKafka, run_tool

#: There is one partition of each internal topic, so that its records are in one file.
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "log.index.interval.bytes": "100",
    "group.share.min.record.lock.duration.ms": "1000",
}
TOPIC = "orders"
KEPT = {
    f"{TOPIC}-0": (".log", ".index", ".timeindex", ".txnindex", ".snapshot"),
    "__consumer_offsets-0": (".log",),
    "__transaction_state-0": (".log",),
    "__share_group_state-0": (".log",),
    "__cluster_metadata-0": (".log",),
}


def produce(server: str) -> None:
    for codec in ("none", "gzip", "lz4"):
        producer = Producer({"bootstrap.servers": server, "compression.type": codec, "linger.ms": 50})
        for number in range(5):
            headers = [("h", b"1"), ("i", None)] if number == 2 else []
            key = None if number == 3 else f"key-{number}"
            producer.produce(TOPIC, f"{codec} {number} " + "x" * 60 if number != 4 else None, key, headers=headers)
        producer.flush()
    in_transactions = Producer({"bootstrap.servers": server, "transactional.id": "bank"})
    in_transactions.init_transactions()
    for end in (in_transactions.commit_transaction, in_transactions.abort_transaction):
        in_transactions.begin_transaction()
        in_transactions.produce(TOPIC, "in a transaction", "t")
        in_transactions.flush()
        end()


def consume(server: str) -> None:
    for protocol in ("classic", "consumer"):
        consumer = Consumer(
            {"bootstrap.servers": server, "group.id": f"{protocol}-readers", "group.protocol": protocol, "auto.offset.reset": "earliest"}
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        assert consumer.consume(5, timeout=30)
        consumer.commit(asynchronous=False)
        consumer.close()
    group = ("--group", "sharers", "--bootstrap-server", server)
    run_tool("kafka-configs", "--bootstrap-server", server, "--alter", "--entity-type", "groups", "--entity-name",
             "sharers", "--add-config", "share.auto.offset.reset=earliest")  # fmt: skip
    run_tool("kafka-console-share-consumer", *group, "--topic", TOPIC, "--max-messages", "3", "--timeout-ms", "20000")


def administer(server: str) -> None:
    for arguments in (
        ("kafka-configs", "--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config",
         "SCRAM-SHA-256=[iterations=4096,password=secret]"),
        ("kafka-configs", "--alter", "--entity-type", "clients", "--entity-name", "app", "--add-config",
         "producer_byte_rate=1000"),
        ("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", TOPIC, "--add-config",
         "retention.ms=9999"),
        ("kafka-acls", "--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", TOPIC),
    ):  # fmt: skip
        done = run_tool(arguments[0], "--bootstrap-server", server, *arguments[1:])
        assert done.returncode == 0, done.stdout + done.stderr


def main() -> None:
    kafka = ApacheKafka(base_port=free_base_port(), properties=PROPERTIES)
    kafka._temporary = False
    with kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(30)
        produce(kafka.bootstrap)
        consume(kafka.bootstrap)
        administer(kafka.bootstrap)
    shutil.rmtree(FILES, ignore_errors=True)
    for name, suffixes in KEPT.items():
        (FILES / name).mkdir(parents=True)
        for path in (kafka.log_dir() / name).iterdir():
            if path.suffix in suffixes:
                shutil.copy(path, FILES / name)
    shutil.copy(kafka.log_dir() / "bootstrap.checkpoint", FILES)
    shutil.rmtree(kafka.data)


if __name__ == "__main__":
    main()
