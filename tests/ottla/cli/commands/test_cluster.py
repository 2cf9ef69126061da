"""`ottla cluster` against a node."""

from __future__ import annotations

from pathlib import Path

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


def test_a_node_that_nothing_replaces_may_stop_and_what_it_takes_away_is_named(cli: Cli, tmp_path: Path) -> None:
    cli.ok("topic", "create", "alone")
    (tmp_path / "server.properties").write_text(
        "node.id=1\nprocess.roles=broker\ncontroller.listener.names=CONTROLLER\ncontroller.quorum.bootstrap.servers=localhost:1\n"
        f"listeners=PLAINTEXT://{cli.bootstrap}\n"
    )
    for node in ("1", str(tmp_path / "server.properties")):
        done = cli("cluster", "may-stop", node)
        assert (done.code, done.out) == (0, "")
        assert "alone-0 will be unavailable meanwhile" in done.err and done.err.endswith("node 1 may stop\n")
    assert cli("cluster", "may-stop", "one").code == 2
