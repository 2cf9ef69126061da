"""`ottla cluster` against a node."""

from __future__ import annotations

from tests.ottla.conftest import Cli


def test_the_brokers_and_the_leader_of_the_quorum(cli: Cli) -> None:
    rows = cli.rows("cluster", "info")
    assert len({row["cluster_id"] for row in rows}) == 1
    assert sum("leader" in str(row["roles"]) for row in rows) == 1
    assert f"localhost:{rows[0]['port']}" in cli.bootstrap or f":{rows[0]['port']}" in cli.bootstrap
    assert "CLUSTER" not in cli.ok("cluster", "info").splitlines()[0]


def test_a_healthy_cluster_is_exit_code_0(cli: Cli) -> None:
    done = cli("cluster", "health")
    assert (done.code, done.out, done.err) == (0, "", "healthy\n")
