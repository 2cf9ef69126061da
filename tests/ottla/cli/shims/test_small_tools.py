"""The small tools of containers and of the quorum: kafka-ready, create-topics, kafka-metadata-quorum."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from ottla.cli.shims import broker_api_versions, create_topics, metadata_quorum
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_state import Quorum
from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
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
    plain = ["-c", str(config), "-s", "PLAINTEXT"]  # the option has precedence over the file
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
    """Return the status of a quorum that node 1 leads: the end of each voter's log, and the time when it had all of the
    leader's.
    """
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
    """Return the exit code and the output of a command that adds the controller of a file of properties in a dry run."""
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


def test_a_snapshot_that_is_a_directory_is_named_by_the_metadata_shell(tmp_path: Path) -> None:
    for path, said in ((tmp_path, "No such device"), (tmp_path / "none", "NoSuchFileException")):
        done = run_ours("kafka-metadata-shell", ["--snapshot", str(path), "ls"], "")
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith("Unexpected error: ") and str(path) in done.err and said in done.err


def test_a_server_is_started_by_a_file_alone(tmp_path: Path) -> None:
    usage = "USAGE: kafka-server-start server.properties [--override property=value]*\n"
    for words in ([], ["-daemon", "server.properties"], ["--override", "a=b"]):
        said = run_ours("kafka-server-start", words, "")
        assert (said.code, said.out, said.err) == (1, "", usage)
    said = run_ours("kafka-server-start", [str(tmp_path)], "")
    assert said.code == 1


class OneOfTwo:
    """A cluster in which broker 2 is fenced, and broker 1 has newer versions than this Ottla of one API and older ones of
    another.
    """

    async def request(self, request: object, node: int | None = None) -> object:
        if isinstance(request, DescribeClusterRequest):
            rows = [
                DescribeClusterBroker(broker_id=2, host="b", port=2, rack="r", is_fenced=True),
                DescribeClusterBroker(broker_id=1, host="a", port=1),
            ]
            return DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=rows)
        assert node == 1
        rows = [
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in ((9_999, 0, 3), (0, 99, 100), (3, 0, 99), (18, 0, 0))
        ]
        return ApiVersionsResponse(api_keys=rows)

    async def metadata(self, names: list[str]) -> None:
        assert names == []


async def test_versions_are_shown_by_broker_with_what_a_client_of_this_release_can_use(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await broker_api_versions.show(cast(ClusterClient, OneOfTwo())) == 0
    newest = APIS[ApiKey.METADATA].max_version
    assert capsys.readouterr().out.splitlines() == [
        "a:1 (id: 1 rack: null isFenced: false) -> (",
        "\tProduce(0): 99 to 100 [usable: UNSUPPORTED],",
        f"\tMetadata(3): 0 to 99 [usable: {newest}],",
        "\tApiVersions(18): 0 [usable: 0],",
        "\tUNKNOWN(9999): 0 to 3",
        ")",
        "b:2 (id: 2 rack: r isFenced: true) -> (",
        ")",
    ]


def test_versions_of_the_node_and_of_none_that_serves(play: Play, cli: Cli) -> None:
    said = play("kafka-broker-api-versions")
    assert said.code == 0 and f"{cli.bootstrap.replace('127.0.0.1', 'localhost')} (id: 1" in said.out.replace(
        "127.0.0.1", "localhost"
    )
    said = run_ours("kafka-broker-api-versions", ["--bootstrap-server", "127.0.0.1:1"], "")
    assert (said.code, said.out) == (1, "") and "Connection refused" in said.err
