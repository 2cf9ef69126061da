"""`ottla group` against a node, with a stock client as the member."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Consumer

from ottla.cli.errors import FAILED
from tests.broker.conftest import eventually
from tests.ottla.conftest import Cli

JOIN_SECONDS_MAX = 30


@contextmanager
def member(cli: Cli, group: str, topic: str, *, take: int) -> Iterator[Consumer]:
    """Yield a consumer that has joined, read `take` records and committed them."""
    consumer = Consumer(
        {
            "bootstrap.servers": cli.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "stock-client",
        }
    )
    try:
        consumer.subscribe([topic])
        assert len(consumer.consume(take, timeout=JOIN_SECONDS_MAX)) == take
        consumer.commit(asynchronous=False)
        yield consumer
    finally:
        consumer.close()


def test_a_group_is_listed_described_reset_and_deleted(cli: Cli) -> None:
    topic = cli.topic()
    group = f"group-of-{topic}"
    cli.ok("produce", topic, stdin="".join(f"{number}\n" for number in range(10)))
    with member(cli, group, topic, take=6):
        (listed,) = [row for row in cli.rows("group", "list") if row["group"] == group]
        assert (str(listed["type"]).lower(), listed["state"], listed["protocol"]) == ("classic", "Stable", "consumer")
        (row,) = cli.rows("group", "describe", group)
        assert (row["committed"], row["end"], row["lag"], row["client_id"]) == (6, 10, 4, "stock-client")
        for arguments in (["reset", group, "-t", topic, "--to", "earliest"], ["delete", group]):
            done = cli("group", *arguments)
            assert done.code == FAILED and "ottla group describe" in done.err, arguments
    # librdkafka closes after five seconds without a response to its LeaveGroup. In that case its session ends after 45 s.
    eventually(lambda: cli.rows("group", "describe", group)[0]["state"] == "Empty", "the member to have left", 60)
    (row,) = cli.rows("group", "describe", group)
    assert (row["state"], row["member"], row["committed"]) == ("Empty", None, 6)
    cli.ok("group", "delete", group)
    assert group not in [row["group"] for row in cli.rows("group", "list")]


def test_offsets_are_reset_to_many_places(cli: Cli) -> None:
    topic = cli.topic(partitions=2)
    group = f"group-of-{topic}"
    start = 1_700_000_000_000
    lines = "".join(f'{{"value": {n}, "partition": 0, "timestamp": {start + n}}}\n' for n in range(10))
    cli.ok("produce", topic, "-i", "json", stdin=lines)
    for to, expected in [
        ("earliest", 0),
        ("latest", 10),
        ("-3", 7),
        ("+1", 8),
        ("4", 4),
        ("99", 10),
        (f"@{start + 2}", 2),
        ("2030-01-01T00:00:00Z", 10),
    ]:
        rows = cli.rows("group", "reset", group, "-t", f"{topic}:0", "--to", to)
        assert [row["new"] for row in rows] == [expected], to
        (described,) = cli.rows("group", "describe", group)
        assert described["committed"] == expected, to
    planned = cli.rows("group", "reset", group, "-t", topic, "--to", "earliest", "--dry-run")
    assert [(row["partition"], row["new"]) for row in planned] == [(0, 0), (1, 0)]
    assert [row["committed"] for row in cli.rows("group", "describe", group)] == [10]


def test_a_group_that_is_not_there(cli: Cli) -> None:
    topic = cli.topic()
    group = f"group-of-{topic}"
    cli.ok("group", "reset", group, "-t", topic, "--to", "earliest")
    for verb in ("describe", "delete"):
        done = cli("group", verb, group + "s")
        assert done.code == FAILED and "GROUP_ID_NOT_FOUND" in done.err and "did you mean" in done.err
