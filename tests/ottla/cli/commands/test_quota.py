"""`ottla quota` against a node."""

from __future__ import annotations

from ottla.cli.errors import FAILED, USAGE
from tests.ottla.conftest import Cli


def quotas_of(cli: Cli, *entity: str) -> dict[str, object]:
    return {str(row["quota"]): row["value"] for row in cli.rows("quota", "list", *entity)}


def test_quotas_are_set_listed_and_removed(cli: Cli) -> None:
    others = cli.rows("quota", "list")
    cli.ok("quota", "set", "user", "ann", "producer_byte_rate=1048576", "request_percentage=12.5")
    cli.ok("quota", "set", "user", "<default>", "--client-id", "c", "consumer_byte_rate=5")
    cli.ok("quota", "set", "ip", "10.0.0.1", "connection_creation_rate=3")
    assert quotas_of(cli, "user", "ann") == {"producer_byte_rate": 1048576, "request_percentage": 12.5}
    assert cli.rows("quota", "list", "client-id", "c") == [
        {"user": "<default>", "client_id": "c", "quota": "consumer_byte_rate", "value": 5}
    ]
    assert len(cli.rows("quota", "list")) == len(others) + 4
    cli.ok("quota", "unset", "user", "ann", "producer_byte_rate", "request_percentage")
    cli.ok("quota", "unset", "ip", "10.0.0.1", "connection_creation_rate")
    left = [row for row in cli.rows("quota", "list") if row not in others]
    assert [row["quota"] for row in left] == ["consumer_byte_rate"]
    cli.ok("quota", "unset", "user", "<default>", "--client-id", "c", "consumer_byte_rate")


def test_a_change_says_from_what_to_what(cli: Cli) -> None:
    of_both = ("user", "eve", "--client-id", "c")
    cli.ok("quota", "set", *of_both, "producer_byte_rate=7")
    set_ = cli("quota", "set", "user", "eve", "producer_byte_rate=1048576", "request_percentage=12.5")
    assert set_.err == "user eve: producer_byte_rate none -> 1048576\nuser eve: request_percentage none -> 12.5\n"
    unset = cli("quota", "unset", "user", "eve", "request_percentage", "producer_byte_rate")
    assert unset.err == "user eve: request_percentage 12.5 -> none\nuser eve: producer_byte_rate 1048576 -> none\n"
    again = cli("quota", "unset", *of_both, "producer_byte_rate")
    assert again.err == "user eve, client-id c: producer_byte_rate 7 -> none\n"
    default = cli("quota", "set", "user", "<default>", "consumer_byte_rate=5", "--dry-run")
    assert default.err == "user <default>: consumer_byte_rate none -> 5\nnothing was changed (--dry-run)\n"


def test_a_dry_run_changes_nothing(cli: Cli) -> None:
    cli.ok("quota", "set", "user", "bob", "producer_byte_rate=5", "--dry-run")
    assert quotas_of(cli, "user", "bob") == {}


def test_what_is_no_quota_is_refused(cli: Cli) -> None:
    unknown = cli("quota", "set", "user", "ann", "producer_byte_rates=5")
    assert unknown.code == USAGE and "'producer_byte_rate'" in unknown.err
    unnamed = cli("quota", "set", "producer_byte_rate=5")
    assert unnamed.code == USAGE and "none of user" in unnamed.err
    bare = cli("quota", "set", "user", "ann", "producer_byte_rate")
    assert bare.code == USAGE and "for example producer_byte_rate=1048576" in bare.err
    text = cli("quota", "set", "user", "ann", "producer_byte_rate=much")
    assert text.code == USAGE
    negative = cli("quota", "set", "user", "ann", "producer_byte_rate=-1")
    assert negative.code == FAILED and "INVALID_REQUEST" in negative.err
    mixed = cli("quota", "set", "user", "ann", "connection_creation_rate=1")
    assert mixed.code == FAILED and "INVALID_REQUEST" in mixed.err
    assert cli("quota", "set", "ip", "10.0.0.1", "--client-id", "c", "connection_creation_rate=1").code == USAGE
