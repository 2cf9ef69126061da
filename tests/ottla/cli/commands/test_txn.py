"""`ottla txn forget` on a transactional id whose newest record cannot be read, with a stock producer."""

from __future__ import annotations

import json
import time

import pytest
from confluent_kafka import Producer

from ottla.broker.coordinator.coordinator import partition_for
from ottla.cli.errors import FAILED
from ottla.protocol.internal_topics.coordinator_records import TransactionLogKey, encode_key
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli

SECONDS_MAX = 30


def started(cli: Cli, transactional_id: str) -> Producer:
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(SECONDS_MAX)
    return producer


@pytest.mark.ours
def test_a_transactional_id_with_an_unreadable_record_is_refused_until_an_operator_forgets_it(cli: Cli) -> None:
    name = cli.topic()
    started(cli, name)
    refused = cli("txn", "forget", name)
    assert refused.code == FAILED and "can be read" in refused.err
    admin = Producer({"bootstrap.servers": cli.bootstrap, "client.id": "__admin_client"})
    count = len(admin.list_topics("__transaction_state").topics["__transaction_state"].partitions)
    key = encode_key(TransactionLogKey(transactional_id=name))
    admin.produce("__transaction_state", b"\0\x63of a newer version", key, partition_for(name, count))
    assert admin.flush(SECONDS_MAX) == 0
    assert cli.ok("txn", "forget", name) == f"forgot {name}\n"
    producer = started(cli, name)
    producer.begin_transaction()
    producer.produce(name, b"again")
    producer.commit_transaction(SECONDS_MAX)


def test_an_open_transaction_is_listed_described_and_aborted(cli: Cli, here: Run) -> None:
    topic = cli.topic()
    producer = started(cli, topic)
    producer.begin_transaction()
    producer.produce(topic, b"never")
    assert producer.flush(SECONDS_MAX) == 0
    listed = here("txn", "list", "--state", "Ongoing", "-o", "json")
    assert [row["transactional_id"] for row in map(json.loads, listed.out.splitlines())] == [topic]
    described = json.loads(here("txn", "describe", topic, "-o", "json").out)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert here("txn", "abort", topic).code == 0
    deadline = time.monotonic() + SECONDS_MAX
    while json.loads(here("txn", "describe", topic, "-o", "json").out)["state"] == "Ongoing":
        assert time.monotonic() < deadline
    assert here("consume", topic, "--isolation", "read_committed").out == ""
    unknown = here("txn", "describe", f"{topic}x")
    assert unknown.code == FAILED and f"did you mean '{topic}'" in unknown.err
