"""The option --dry-run of each command that changes something: it shows the change, fails if the change would fail, and changes
nothing.
"""

from __future__ import annotations

import pytest

from ottla.cli.errors import FAILED, USAGE
from tests.ottla.conftest import Cli


def test_a_topic_is_checked_and_not_created(cli: Cli) -> None:
    name = f"{cli.topic()}-dry"
    done = cli("topic", "create", name, "-p", "3", "--dry-run")
    assert done.code == 0 and f"would create topic {name}; nothing was changed" in done.err
    assert cli("topic", "describe", name).code == FAILED
    assert "INVALID_REPLICATION_FACTOR" in cli("topic", "create", name, "-r", "99", "--dry-run").err


def test_partitions_and_records_stay(cli: Cli) -> None:
    name = cli.topic()
    cli.ok("produce", name, stdin="a\nb\nc\n")
    assert "would give" in cli("topic", "add-partitions", name, "--to", "4", "--dry-run").err
    assert "INVALID_PARTITIONS" in cli("topic", "add-partitions", name, "--to", "1", "--dry-run").err
    (row,) = cli.rows("topic", "delete-records", name, "--before", "2", "--dry-run")
    assert (row["first_offset"], row["records"]) == (2, 2)
    assert "OFFSET_OUT_OF_RANGE" in cli("topic", "delete-records", name, "--before", "9", "--dry-run").err
    (described,) = cli.rows("topic", "describe", name)
    assert (described["records"], described["partition"]) == (3, 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["user", "create", "dry", "--generate"], "would create user dry"),
        (["acl", "add", "dry", "read", "topic:x"], "SECURITY_DISABLED"),
        (["token", "create"], "DELEGATION_TOKEN"),
        (["group", "delete", "no-such-group"], "GROUP_ID_NOT_FOUND"),
        (["txn", "abort", "no-such-id"], "TRANSACTIONAL_ID_NOT_FOUND"),
        (["broker", "remove", "99"], "there is no broker 99"),
        (["partition", "elect"], "would elect the leaders of no partition"),
        (["user", "delete", "no-such-user"], "no SCRAM credentials"),
    ],
)
def test_each_change_says_what_it_would_do_or_why_it_could_not(cli: Cli, arguments: list[str], says: str) -> None:
    assert says in cli(*arguments, "--dry-run").err
    assert cli.rows("user", "list") == []


def test_moves_are_checked_against_the_brokers_that_there_are(cli: Cli) -> None:
    name = cli.topic()
    here = str(cli.rows("broker", "list")[0]["broker"])
    assert "nothing was changed (--dry-run)" in cli("move", "run", name, "--to", here, "--dry-run").err
    done = cli("move", "run", name, "--to", "99", "--dry-run")
    assert done.code == USAGE and "broker 99" in done.err
