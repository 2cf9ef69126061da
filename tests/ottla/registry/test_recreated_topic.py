"""The topic of the schemas is deleted and created again while instances run: the name then has another id."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ottla.conftest import COMMAND_SECONDS_MAX, Cli
from tests.ottla.registry.instances import WAIT_S_MAX, Instance, Registries, Writers, schema

#: The numbers of schemas of the topics in their order: a shorter topic follows, and then a longer one.
FIRST, LONGER = 5, 40


@pytest.fixture
def two(cli: Cli, tmp_path: Path) -> Iterator[Registries]:
    with open(tmp_path / "errors", "w+", encoding="utf-8") as errors:
        made = Registries(cli.bootstrap, errors=errors)
        made.at_least(2)
        yield made
        made.stop()


def recreate(registries: Registries, rows: range = range(0)) -> None:
    """Delete the topic and create it again. Then it has a schema of each number, with an id one higher than before."""
    admin = AdminClient({"bootstrap.servers": registries.bootstrap})
    admin.delete_topics([registries.topic])[registries.topic].result(COMMAND_SECONDS_MAX)
    made = NewTopic(registries.topic, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([made])[registries.topic].result(COMMAND_SECONDS_MAX)
    producer = Producer({"bootstrap.servers": registries.bootstrap})
    for number in rows:
        key = {"keytype": "SCHEMA", "subject": f"t{number}", "version": 1, "magic": 1}
        value = {"subject": f"t{number}", "version": 1, "id": number + 1, "deleted": False, **schema(number)}
        producer.produce(registries.topic, json.dumps(value), json.dumps(key))
    assert producer.flush(COMMAND_SECONDS_MAX) == 0


def wait_for(instance: Instance, subjects: set[str]) -> None:
    """Reads are answered from the instance's state; it looks the topic up only every few seconds."""
    until = time.monotonic() + WAIT_S_MAX
    while (found := set(instance.client.subjects())) != subjects:
        assert time.monotonic() < until, found
        time.sleep(0.05)


def register(instance: Instance, number: int) -> Any:
    return instance.ask("POST", f"/subjects/s{number}/versions", schema(number))


def test_each_instance_has_the_records_of_the_new_topic_and_none_of_the_old_one(two: Registries) -> None:
    leader, (other, *_) = two.leader()
    assert [register(leader, number)["id"] for number in range(FIRST)] == list(range(1, FIRST + 1))
    wait_for(other, {f"s{number}" for number in range(FIRST)})
    recreate(two)
    # No new id follows those of the deleted topic: the first write waits until the new topic has been read.
    assert register(leader, 100)["id"] == 1
    assert register(other, 101)["id"] == 2
    assert set(other.client.subjects()) == {"s100", "s101"}
    assert leader.rejected("GET", f"/schemas/ids/{FIRST}") == 40403
    recreate(two, range(LONGER))
    assert register(other, 200)["id"] == LONGER + 1
    for each in (leader, other):
        wait_for(each, {f"t{number}" for number in range(LONGER)} | {"s200"})
    assert two.errors is not None
    two.errors.seek(0)
    said = [line for line in two.errors if "was deleted and created again: its records are read" in line]
    assert len(said) == 4


@pytest.mark.chaos
def test_who_writes_meanwhile_gets_no_id_that_a_fresh_instance_gives_to_another_schema(two: Registries) -> None:
    writers = Writers(lambda: two.urls, 2, 300)
    writers.wait(5)
    recreate(two)
    before = dict(writers.given)
    writers.wait(10)
    recreate(two, range(LONGER))
    writers.wait(10)
    writers.stop()
    assert writers.problems == [] and len(writers.given) > len(before)
    seen = [
        sorted((row["id"], row["schema"]) for row in each.client.get("/schemas"))
        for each in [*two.running, two.start()]
    ]
    assert seen[0] == seen[1] == seen[2]
    ids = [schema_id for schema_id, _ in seen[0]]
    assert sorted(set(ids)) == list(range(1, len(ids) + 1))
    kept = dict(seen[0])
    assert all(json.loads(kept[number + 1])["name"] == f"F{number}" for number in range(LONGER))
