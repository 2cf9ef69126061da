"""`ottla init`: its files belong to one cluster, and the command that it prints works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from random import Random

import pytest

from ottla.__main__ import main
from ottla.client.failures import Failure
from ottla.local.cluster_files import plan, read_hosts
from ottla.node.formatting import prepare
from ottla.server.config.node_config import NodeConfig
from ottla.server.config.properties_file import read_properties
from ottla.storage.directories.log_dirs import read_meta_properties
from ottla.storage.files import OsFiles

ETC = "/etc/ottla"


def config_of(path: Path, **more: str) -> NodeConfig:
    return NodeConfig(read_properties(path.read_bytes(), str(path)) | more)


def test_three_machines_are_a_quorum_whose_nodes_the_printed_command_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "c"), "--nodes", "a.example,b.example,c.example", "--data", "DATA"]) == 0
    printed = capsys.readouterr()
    assert "--secure" in printed.err, "everybody may do everything"
    [command] = [line for line in printed.out.splitlines() if "ottla format" in line]
    identities = []
    for number, name in enumerate(("a", "b", "c"), 1):
        file = tmp_path / "c" / "nodes" / f"{name}.example.properties"
        moved = tmp_path / f"{name}.properties"  # each has its own directory on this one machine
        moved.write_text(file.read_text().replace("DATA", str(tmp_path / name)))
        words = shlex.split(command.replace(f"{ETC}/server.properties", str(moved)))
        assert main(words[words.index("format") :]) == 0
        config = config_of(moved)
        assert config.node_id == number and len(config.bootstrap_servers) == 3
        prepare(OsFiles(), config, Random(1), 0)  # it is formatted, and needs nothing more
        meta = read_meta_properties(OsFiles(), str(tmp_path / name))
        assert meta is not None
        identities.append(meta.cluster_id)
    assert len(set(identities)) == 1


def test_with_security_the_files_name_keys_where_they_will_lie_on_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["init", str(tmp_path / "c"), "--nodes", "4", "--secure", "--user", "alice"]) == 0
    printed = capsys.readouterr().out
    assert "--users users" in printed
    password = re.search(r"name=alice,password=(.+)\]", (tmp_path / "c" / "users").read_text())
    assert password is not None and password[1] not in printed
    for name in ("node-1", "node-4"):
        config = config_of(tmp_path / "c" / "nodes" / f"{name}.properties")
        assert config["ssl.keystore.location"] == f"{ETC}/{name}.pem"
        assert config["ssl.truststore.location"] == f"{ETC}/ca.pem"
        assert config.inter_broker_listener == "SASL_SSL"


@pytest.mark.parametrize(("hosts", "voters"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_a_quorum_has_one_voter_or_three(hosts: int, voters: int) -> None:
    cluster = plan(read_hosts(str(hosts)), Random(1), "/data", ETC)
    assert [node.is_controller for node in cluster.nodes] == [True] * voters + [False] * (hosts - voters)
    assert cluster.initial_controllers.count("@") == voters


def test_a_broker_beside_the_quorum_formats_itself(tmp_path: Path) -> None:
    cluster = plan(read_hosts("4"), Random(1), str(tmp_path), ETC)
    config = NodeConfig(cluster.properties_of(cluster.nodes[3], "PLAINTEXT"))
    assert not config.is_controller
    assert prepare(OsFiles(), config, Random(2), 0) == cluster.cluster_id


@pytest.mark.parametrize("text", ["0", "", "a,,b", "a b", "a,a", "101", "-3"])
def test_hosts_that_no_cluster_can_have_are_refused(text: str) -> None:
    with pytest.raises(Failure):
        read_hosts(text)


def test_users_without_logins_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "c"), "--user", "alice"]) == 2
    assert not (tmp_path / "c").exists()
