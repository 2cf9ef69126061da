"""`ottla bench` measures, and leaves nothing behind."""

from __future__ import annotations

from tests.ottla.conftest import Cli


def test_the_three_rows_account_for_every_record_and_the_topic_is_gone_afterwards(cli: Cli) -> None:
    rows = cli.rows("bench", "-n", "5000", "-s", "100", "-p", "2")
    assert [(row["what"], row["records"]) for row in rows] == [
        ("produce, acks=all", 5000),
        ("consume", 5000),
        ("one record at a time", 1000),
    ]
    assert rows[2]["p50_ms"] <= rows[2]["p99_ms"] <= rows[2]["max_ms"]
    assert not [row for row in cli.rows("topic", "list") if str(row["topic"]).startswith("ottla-bench")]


def test_a_count_below_one_is_a_usage_error(cli: Cli) -> None:
    done = cli("bench", "-n", "0")
    assert done.code == 2
    assert "--records" in done.err
