"""`ottla transaction forget`: a transactional id whose newest record cannot be read, with a stock producer."""

from __future__ import annotations

from confluent_kafka import Producer

from ottla.broker.coordinator.partitions import partition_for
from ottla.cli.errors import FAILED
from ottla.protocol.internal_topics.coordinator_records import encode_key
from ottla.protocol.internal_topics.transaction_records import TransactionLogKey
from tests.ottla.conftest import Cli

SECONDS_MAX = 30


def started(cli: Cli, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS_MAX)
    return producer


def test_a_transactional_id_with_an_unreadable_record_is_refused_until_an_operator_forgets_it(cli: Cli) -> None:
    name = cli.topic()
    started(cli, name)
    refused = cli("transaction", "forget", name)
    assert refused.code == FAILED and "can be read" in refused.err
    admin = Producer({"bootstrap.servers": cli.bootstrap, "client.id": "__admin_client"})
    count = len(admin.list_topics("__transaction_state").topics["__transaction_state"].partitions)
    key = encode_key(TransactionLogKey(transactional_id=name))
    admin.produce("__transaction_state", b"\0\x63of a newer version", key, partition_for(name, count))
    assert admin.flush(SECONDS_MAX) == 0
    assert cli.ok("transaction", "forget", name) == f"forgot {name}\n"
    producer = started(cli, name)
    producer.begin_transaction()
    producer.produce(name, b"again")
    producer.commit_transaction(SECONDS_MAX)
