"""`ottla apply` against a node."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.commands import apply
from ottla.cli.errors import FAILED, OK, USAGE
from ottla.testing import Cluster
from tests.ottla.cli.commands.conftest import Run
from tests.ottla.conftest import Cli, run_here


def test_a_file_is_applied_once_and_a_second_time_there_is_nothing_to_change(
    cli: Cli, here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{cli.topic()}-declared"
    monkeypatch.setenv("PASSWORD", "secret")
    file = tmp_path / "cluster.yml"
    file.write_text(
        f"topics: {{{topic}: {{partitions: 2, replication_factor: 1, config: {{retention.ms: 5000}}}}}}\n"
        f"users: {{{topic}: {{password_env: PASSWORD, mechanism: SCRAM-SHA-256}}}}\n"
        f"quotas: [{{user: {topic}, producer_byte_rate: 1024}}]\n"
    )
    planned = here("apply", "-f", str(file), "--dry-run")
    assert planned.code == OK and len(planned.out.splitlines()) == 4
    assert topic not in here("topic", "list").out
    applied = here("apply", "-f", str(file), "--yes")
    assert applied.code == OK and "made 3 changes" in applied.err
    again = here("apply", "-f", str(file))
    assert (again.code, again.out, again.err) == (OK, "", "nothing to change\n")
    file.write_text(file.read_text().replace("partitions: 2", "partitions: 3").replace("5000", "6000"))
    assert "made 2 changes" in here("apply", "-f", str(file)).err
    file.write_text(file.read_text().replace("partitions: 3", "partitions: 1"))
    refused = here("apply", "-f", str(file))
    assert refused.code == FAILED and "partitions are never taken away" in refused.err
    assert here("user", "delete", topic, "--yes").code == OK
    assert here("quota", "unset", "user", topic, "producer_byte_rate").code == OK
    assert here("apply", "-f", str(tmp_path / "absent.yml")).code == USAGE


@pytest.mark.ours
def test_settings_that_only_ottla_has_are_left_out_for_apache_kafka(
    cli: Cli, here: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = f"{cli.topic()}-own"
    file = tmp_path / "cluster.yml"
    config = "{retention.ms: 5000, ottla.table.format: delta}"
    file.write_text(f"topics: {{{topic}: {{partitions: 1, replication_factor: 1, config: {config}}}}}\n")
    assert "ottla.table.format=delta" in here("apply", "-f", str(file), "--dry-run").out

    async def takes_none(cluster: object) -> bool:
        return False

    monkeypatch.setattr(apply, "takes_own_configs", takes_none)
    planned = here("apply", "-f", str(file), "--dry-run")
    assert "retention.ms=5000" in planned.out and "ottla" not in planned.out
    assert f"topic {topic}: ottla.table.format left out, which these brokers do not have" in planned.err


def test_the_example_is_a_whole_file_that_a_secure_cluster_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = run_here("apply", "--example")
    assert shown.code == OK
    page = Path(__file__).parents[4].joinpath("docs", "GITOPS.md").read_text()
    assert f"```yaml\n{shown.out}```\n" in page, "docs/GITOPS.md shows it"
    file = tmp_path / "cluster.yml"
    file.write_text(shown.out)
    monkeypatch.setenv("ALICE_PASSWORD", "secret")
    with Cluster(1, secure=True) as cluster:
        options = ("-f", str(file), "-b", cluster.bootstrap, "--config", cluster.client_file)
        applied = run_here("apply", *options, "--yes")
        assert applied.code == OK, applied.err
        again = run_here("apply", *options)
        assert (again.code, again.err) == (OK, "nothing to change\n"), again.out
        rows = run_here("topic", "list", "orders", "-o", "json", *options[2:]).out
        assert '"partitions": 6' in rows


def test_apply_without_a_file_says_how_to_begin_one() -> None:
    done = run_here("apply")
    assert done.code == USAGE and "ottla apply --example > cluster.yml" in done.err
