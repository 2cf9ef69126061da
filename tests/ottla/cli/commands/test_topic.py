"""`ottla topic` against a node."""

from __future__ import annotations

import json

from ottla.cli.errors import FAILED
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli


def test_a_topic_is_created_listed_described_and_deleted(cli: Cli) -> None:
    name = f"{cli.topic()}-life"
    (created,) = cli.rows("topic", "create", name, "-p", "3", "-r", "1", "-c", "retention.ms=3600000")
    assert (created["partitions"], created["replication_factor"]) == (3, 1)
    (listed,) = [row for row in cli.rows("topic", "list") if row["topic"] == name]
    assert listed["topic_id"] == created["topic_id"]
    described = cli.rows("topic", "describe", name)
    assert [row["partition"] for row in described] == [0, 1, 2]
    assert all(row["isr"] == row["replicas"] and row["records"] == 0 for row in described)
    cli.ok("topic", "delete", name)
    assert name not in [row["topic"] for row in cli.rows("topic", "list")]


def test_a_table_has_aligned_columns_and_no_colour(cli: Cli) -> None:
    name = cli.topic()
    header, *rows = cli.ok("topic", "describe", name).splitlines()
    assert header.split() == [
        "TOPIC",
        "PARTITION",
        "LEADER",
        "REPLICAS",
        "ISR",
        "FIRST-OFFSET",
        "NEXT-OFFSET",
        "RECORDS",
    ]
    assert rows[0].startswith(name) and rows[0][header.index("PARTITION")] == "0"
    assert "\x1b" not in header + "".join(rows)


def test_a_topic_that_exists_already(cli: Cli) -> None:
    name = cli.topic()
    again = cli("topic", "create", name)
    assert again.code == FAILED and "TOPIC_ALREADY_EXISTS" in again.err and "--if-not-exists" in again.err
    assert cli("topic", "create", name, "--if-not-exists").code == 0


def test_bad_topics_are_refused_with_the_reason(cli: Cli) -> None:
    for arguments, reason in [
        (["bad name!"], "INVALID_TOPIC_EXCEPTION"),
        (["cli-bad", "-p", "0"], "INVALID_PARTITIONS"),
        (["cli-bad", "-r", "99"], "INVALID_REPLICATION_FACTOR"),
        (["cli-bad", "-c", "retention.ms=soon"], "INVALID_CONFIG"),
        (["cli-bad", "-c", "no.such.key=1"], "INVALID_CONFIG"),
    ]:
        done = cli("topic", "create", *arguments)
        assert done.code == FAILED and reason in done.err, arguments
    assert "cli-bad" not in [row["topic"] for row in cli.rows("topic", "list")]


def test_a_topic_that_is_not_there_gets_a_suggestion(cli: Cli) -> None:
    name = cli.topic()
    for arguments in (["topic", "describe"], ["topic", "delete"], ["consume"]):
        done = cli(*arguments, name + "x")
        assert done.code == FAILED and "UNKNOWN_TOPIC_OR_PARTITION" in done.err
        assert "did you mean 'cli-" in done.err


def test_partitions_are_added_and_never_taken_away(cli: Cli) -> None:
    name = cli.topic(partitions=2)
    cli.ok("topic", "add-partitions", name, "--to", "4")
    assert len(cli.rows("topic", "describe", name)) == 4
    less = cli("topic", "add-partitions", name, "--to", "3")
    assert less.code == FAILED and "INVALID_PARTITIONS" in less.err


def test_the_oldest_records_are_deleted(cli: Cli) -> None:
    name = cli.topic()
    cli.ok("produce", name, stdin="".join(f"{number}\n" for number in range(10)))
    assert cli.rows("topic", "delete-records", name, "--before", "4")[0]["first_offset"] == 4
    assert cli.ok("consume", name, "-o", "value").split() == ["4", "5", "6", "7", "8", "9"]
    beyond = cli("topic", "delete-records", name, "--before", "11")
    assert beyond.code == FAILED and "OFFSET_OUT_OF_RANGE" in beyond.err
    assert cli.rows("topic", "delete-records", name, "--before", "latest")[0]["first_offset"] == 10
    assert cli.ok("consume", name) == ""


def test_patterns_list_and_delete_topics_and_a_dry_run_deletes_none(cli: Cli, here: Run) -> None:
    names = [f"{cli.topic()}-pattern" for _ in range(2)]
    for name in names:
        assert here("topic", "create", name).code == 0
    pattern = f"{names[0][:-8]}-pat*"
    listed = here("topic", "list", pattern, "-o", "json").out.splitlines()
    assert [json.loads(line)["topic"] for line in listed] == [names[0]]
    assert names[0] in here("topic", "delete", pattern, "--dry-run").err
    assert here("topic", "delete", pattern, names[1]).code == 0
    assert here("topic", "list", *names, "-o", "json").out == ""
    nothing = here("topic", "delete", "no-such-*")
    assert nothing.code == FAILED and "no topic matches" in nothing.err


def test_two_topics_differ_in_partitions_and_settings(cli: Cli, here: Run) -> None:
    one, other = cli.topic(), cli.topic(partitions=2)
    assert here("config", "set", "topic", other, "retention.ms=5000").code == 0
    found = here("topic", "diff", one, other, "-o", "json")
    assert found.code == FAILED
    assert [json.loads(line) for line in found.out.splitlines()] == [
        {"name": "partitions", one: "1", other: "2"},
        {"name": "retention.ms", one: "604800000", other: "5000"},
    ]
    settings = here("config", "diff", "topic", one, other, "-o", "json")
    assert [json.loads(line)["name"] for line in settings.out.splitlines()] == ["retention.ms"]
    same = here("topic", "diff", one, one)
    assert same.code == 0


def test_a_misspelt_setting_of_a_new_topic_gets_a_suggestion(here: Run) -> None:
    refused = here("topic", "create", "never", "-c", "retention.msx=5")
    assert refused.code == FAILED and "did you mean 'retention.ms'" in refused.err
    none = here("topic", "create", "never", "-p", "0")
    assert none.code == FAILED and "at least 1 partition" in none.err
