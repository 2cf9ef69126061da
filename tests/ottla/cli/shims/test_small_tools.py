"""Tools of containers and of the quorum: kafka-ready, create-topics, kafka-metadata-quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cli.shims import create_topics, metadata_quorum
from ottla.client.cluster_state import Quorum
from ottla.protocol.messages.describe_quorum import PartitionDataResponse, ReplicaState
from ottla.protocol.primitives import uuid_from_str
from tests.ottla.cli.shims.conftest import Play
from tests.ottla.cli.shims.recorded import run_ours
from tests.ottla.conftest import Cli

DIRECTORY = "Zm9vYmFyYmF6cXV4Zm9vYg"


def test_ready_waits_for_so_many_brokers_and_no_longer_than_it_is_asked(cli: Cli, tmp_path: Path) -> None:
    assert run_ours("kafka-ready", ["-b", cli.bootstrap, "1", "30"], "").code == 0
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=SSL\n")
    plain = ["-c", str(config), "-s", "PLAINTEXT"]  # the option wins over the file
    assert run_ours("kafka-ready", ["-b", cli.bootstrap, *plain, "1", "30"], "").code == 0
    said = run_ours("kafka-ready", ["-b", cli.bootstrap, "2", "1"], "")
    assert (said.code, said.err) == (1, "Expected 2 brokers but not all were there within 1 s\n")
    assert run_ours("kafka-ready", ["-b", "127.0.0.1:1", "1", "1"], "").code == 1


def test_topics_of_a_container_are_created_once_and_a_wrong_one_does_not_stop_the_others(cli: Cli) -> None:
    one, two = f"{cli.topic()}-one", f"{cli.topic()}-two"
    wanted = f"{one}:2:1,wrong,{two}:1:1:compact"
    said = run_ours("create-topics", [cli.bootstrap, wanted], "")
    assert said.code == 1
    assert "Topic not created: wrong is not name:partitions:copies or name:partitions:copies:policy\n" in said.out
    (row,) = cli.rows("topic", "list", one)
    assert row["partitions"] == 2
    assert "compact" in cli.ok("config", "get", "topic", two, "cleanup.policy")
    assert run_ours("create-topics", [cli.bootstrap, f"{one}:2:1"], "").code == 0


def test_topics_are_not_created_where_no_node_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_topics, "START_S_MAX", 1)
    said = run_ours("create-topics", ["127.0.0.1:1", "a:1:1"], "")
    assert said.code == 1 and "Expected 1 brokers" in said.err and "Created topic" not in said.out


def status(**ends: tuple[int, int]) -> dict[str, object]:
    """The status of a quorum that node 1 leads: the end of each voter's log, and when it had all of the leader's."""
    rows = [
        ReplicaState(int(name[1:]), log_end_offset=end, last_fetch_timestamp=-1, last_caught_up_timestamp=caught_up)
        for name, (end, caught_up) in ends.items()
    ]
    partition = PartitionDataResponse(leader_id=1, leader_epoch=3, high_watermark=9, current_voters=rows, observers=[])
    return metadata_quorum.status(Quorum(partition, {1: ["CONTROLLER://h:1"]}), "cluster")


@pytest.mark.parametrize(
    ("ends", "lag", "lag_ms"),
    [
        ({"n1": (10, 5_000)}, 0, 0),
        ({"n1": (10, 5_000), "n2": (10, 4_000)}, 0, 0),
        ({"n1": (10, 5_000), "n2": (7, 4_000)}, 3, 1_000),
        ({"n1": (10, 5_000), "n2": (7, -1)}, 3, -1),
    ],
)
def test_the_lag_of_a_quorum_is_that_of_its_slowest_voter(
    ends: dict[str, tuple[int, int]], lag: int, lag_ms: int
) -> None:
    facts = status(**ends)
    assert (facts["MaxFollowerLag"], facts["MaxFollowerLagTimeMs"]) == (lag, lag_ms)
    assert str(facts["CurrentVoters"]).startswith('[{"id": 1, "endpoints": ["CONTROLLER://h:1"]}')


CONTROLLER = (
    "process.roles=controller\nnode.id=7\nlog.dirs={folder}\ncontroller.listener.names=CONTROLLER\n"
    "listeners=CONTROLLER://:9093,BROKER://:9092,wrong\nadvertised.listeners=CONTROLLER://c7:19093\n"
)


@pytest.fixture
def formatted(tmp_path: Path) -> Path:
    (tmp_path / "meta.properties").write_text(f"version=1\ncluster.id=c\nnode.id=7\ndirectory.id={DIRECTORY}\n")
    return tmp_path


def add(play: Play, folder: Path, text: str) -> tuple[int, str]:
    """Add the controller of a file of properties, without doing it. Return the exit code, and what was printed."""
    path = folder / "controller.properties"
    path.write_text(text.format(folder=folder))
    said = play("kafka-metadata-quorum", "--command-config", str(path), "add-controller", "--dry-run")
    return said.code, said.out + said.err


def test_a_controller_that_is_added_is_described_by_its_own_file(play: Play, formatted: Path) -> None:
    said = f"DRY RUN of adding controller 7 with directory id {DIRECTORY} and endpoints: CONTROLLER://c7:19093\n"
    assert add(play, formatted, CONTROLLER) == (0, said)


@pytest.mark.parametrize(
    ("instead", "text", "reason"),
    [
        ("process.roles=controller", "process.roles=broker", "process.roles did not contain controller"),
        ("node.id=7", "node.id=seven", "node.id not found in configuration file"),
        ("log.dirs={folder}", "log.dirs=", "Neither metadata.log.dir nor log.dirs was found"),
        ("log.dirs={folder}", "log.dirs={folder}/none", "No directory id found in"),
        ("listener.names=CONTROLLER", "listener.names=C", "controller.listener.names not found"),
    ],
)
def test_a_file_that_is_none_of_a_controller_is_refused(
    play: Play, formatted: Path, instead: str, text: str, reason: str
) -> None:
    code, said = add(play, formatted, CONTROLLER.replace(instead, text))
    assert code == 1 and reason in said


def test_a_controller_is_removed_by_its_id_and_its_directory(play: Play) -> None:
    def remove(number: str, directory: str, *more: str) -> tuple[int, str]:
        arguments = ("remove-controller", "--controller-id", number, "--controller-directory-id", directory)
        said = play("kafka-metadata-quorum", *arguments, *more)
        return said.code, said.out + said.err

    assert uuid_from_str(DIRECTORY)
    assert remove("7", DIRECTORY, "--dry-run") == (
        0,
        f"DRY RUN of removing KRaft controller 7 with directory id {DIRECTORY}\n",
    )
    assert remove("-7", DIRECTORY) == (1, "Invalid negative --controller-id: -7\n")
    assert remove("7", "short")[1].startswith("Failed to parse --controller-directory-id: ")
    code, said = remove("7", DIRECTORY)
    assert code == 1 and "org.apache.kafka.common.errors." in said
