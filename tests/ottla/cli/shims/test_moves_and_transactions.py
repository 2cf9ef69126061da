"""kafka-reassign-partitions with directories and with moves that are not finished, and kafka-transactions with an open
transaction.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from ottla.cli.shims import reassign_partitions
from ottla.client.cluster import ClusterClient
from ottla.client.partitions import TopicPartition
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.list_partition_reassignments import OngoingPartitionReassignment
from tests.ottla.cli.shims.conftest import Play
from tests.ottla.conftest import Cli

SECONDS_MAX = 30


class Moves:
    """Run kafka-reassign-partitions with a plan for one topic, whose replicas are all at node 1."""

    def __init__(self, play: Play, folder: Path, topic: str) -> None:
        self.play, self.path, self.topic = play, folder / "plan.json", topic

    def __call__(self, action: str, directory: str = "any", *more: str, partitions: int = 1) -> list[str]:
        rows = [
            {"topic": self.topic, "partition": index, "replicas": [1], "log_dirs": [directory]}
            for index in range(partitions)
        ]
        self.path.write_text(json.dumps({"version": 1, "partitions": rows}))
        plan = () if action == "--list" else ("--reassignment-json-file", str(self.path))
        return self.play("kafka-reassign-partitions", action, *plan, *more).out.splitlines()


@pytest.fixture
def moves(cli: Cli, play: Play, tmp_path: Path) -> Moves:
    return Moves(play, tmp_path, cli.topic())


@pytest.fixture
def directory(cli: Cli) -> str:
    """Return the only log directory of the node."""
    return str(cli.rows("broker", "log-dirs")[0]["log_dir"])


def test_a_replica_that_is_in_its_directory_already_has_arrived(moves: Moves, directory: str) -> None:
    started = f"Successfully started moving log directory to {directory} for replica {moves.topic}-0 with broker 1 "
    assert moves("--execute", directory)[-1] == started
    assert f"Reassignment of replica {moves.topic}-0-1 completed successfully." in moves("--verify", directory)


def test_a_directory_that_a_broker_does_not_have_is_named(moves: Moves, directory: str) -> None:
    assert moves("--execute", "/no/such/directory")[-1].startswith(f"Failed to alter dir for {moves.topic}-0-1: ")
    elsewhere = f"Partition {moves.topic}-0 on broker 1 is not being moved from log dir {directory} to /other."
    assert elsewhere in moves("--verify", "/other")


def test_a_partition_that_is_not_there_is_in_no_directory(moves: Moves, directory: str) -> None:
    lines = moves("--verify", directory, partitions=2)
    assert f"Partition {moves.topic}-1 cannot be found in any live log directory on broker 1." in lines
    assert any("but replica set is  rather than 1." in line for line in lines)
    unknown = moves("--execute", "any", partitions=2)
    assert unknown[-1].endswith(f"Unable to find partition: {moves.topic}-1")


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (("/new", True), "Reassignment of replica {topic}-0-1 is still in progress."),
        (("/third", True), "Partition {topic}-0 on broker 1 is being moved to log dir /third instead of /new."),
    ],
)
def test_a_replica_that_is_being_moved_keeps_its_throttles(
    moves: Moves, monkeypatch: pytest.MonkeyPatch, now: tuple[str, bool], text: str
) -> None:
    async def directories(cluster: ClusterClient, brokers: object) -> dict[reassign_partitions.PlannedReplica, object]:
        return {reassign_partitions.PlannedReplica(moves.topic, 0, 1): now}

    monkeypatch.setattr(reassign_partitions, "directories", directories)
    lines = moves("--verify", "/new")
    assert text.format(topic=moves.topic) in lines
    assert not any("Clearing" in line for line in lines)


def test_a_broker_that_has_no_replica_yet_is_asked_until_the_time_is_over(
    moves: Moves, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def not_yet(cluster: ClusterClient, broker: int, wanted: dict[TopicPartition, str]) -> dict[object, int]:
        return dict.fromkeys(wanted, ErrorCode.REPLICA_NOT_AVAILABLE)

    monkeypatch.setattr(reassign_partitions, "alter_replica_log_dirs", not_yet)
    timed_out = f"Timed out before log directory move could be started for: {moves.topic}-0-1"
    assert moves("--execute", directory, "--timeout", "150")[-1] == timed_out


@pytest.fixture
def under_way(moves: Moves, monkeypatch: pytest.MonkeyPatch) -> Moves:
    """Let the controller list a move of the partition to node 2, which this cluster does not have."""

    async def ongoing(cluster: ClusterClient) -> dict[TopicPartition, OngoingPartitionReassignment]:
        return {(moves.topic, 0): OngoingPartitionReassignment(0, [2, 1], [2], [1])}

    monkeypatch.setattr(reassign_partitions, "list_reassignments", ongoing)
    return moves


def test_moves_under_way_are_listed_and_verified_and_stop_others(under_way: Moves) -> None:
    listed = f"{under_way.topic}-0: replicas: 2,1. adding: 2. removing: 1."
    assert under_way("--list") == ["Current partition reassignments:", listed]
    assert f"Reassignment of partition {under_way.topic}-0 is still in progress." in under_way("--verify")
    assert under_way("--execute")[0].startswith("Cannot execute because there is an existing partition assignment.")


def test_a_cancellation_that_the_controller_rejects_names_the_partition(under_way: Moves) -> None:
    head, line = under_way("--cancel")[:2]
    assert head == "Error cancelling partition reassignment for:"
    assert line.startswith(f"{under_way.topic}-0: ") and len(line) > len(f"{under_way.topic}-0: ")


def test_a_cancelled_move_goes_back_to_the_directory_that_it_left(
    under_way: Moves, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(cluster: ClusterClient, places: dict[TopicPartition, object]) -> dict[object, object]:
        return dict.fromkeys(places, (0, None))

    async def moving(cluster: ClusterClient, brokers: object) -> dict[object, object]:
        return {reassign_partitions.PlannedReplica(under_way.topic, 0, 1): (directory, True)}

    monkeypatch.setattr(reassign_partitions, "alter_reassignments", cancelled)
    monkeypatch.setattr(reassign_partitions, "directories", moving)
    lines = under_way("--cancel", directory, "--preserve-throttles")
    assert lines == [
        f"Successfully cancelled partition reassignment for: {under_way.topic}-0",
        f"Successfully started moving log directory to {directory} for replica {under_way.topic}-0 with broker 1 ",
    ]


# -- Transactions -----------------------------------------------------------------------------------------------------


def opened(cli: Cli, topic: str) -> Producer:
    """Begin a transaction with one record. Its id is the topic's name."""
    producer = Producer({"bootstrap.servers": cli.bootstrap, "transactional.id": topic})
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(SECONDS_MAX) == 0
    return producer


def test_an_open_transaction_is_listed_described_and_is_no_hanging_one(cli: Cli, play: Play) -> None:
    topic = cli.topic()
    opened(cli, topic)
    listed = play("kafka-transactions", "list", "--transactional-id-pattern", f"{topic}.*").out.splitlines()
    assert listed[1].split("\t")[0].strip() == topic and listed[1].split("\t")[-1].strip() == "Ongoing"
    described = play("kafka-transactions", "describe", "--transactional-id", topic).out.splitlines()
    cells = [cell.strip() for cell in described[1].split("\t")]
    assert cells[1] == topic and cells[4] == "Ongoing" and cells[-1] == f"{topic}-0" and int(cells[-2]) >= 0
    place = ("--topic", topic, "--partition", "0")
    producers = play("kafka-transactions", "describe-producers", *place).out.splitlines()
    assert producers[1].split("\t")[-1].strip() == "0"
    old = ("--max-transaction-timeout", "-1")  # in minutes; each transaction is older
    hanging = play("kafka-transactions", "find-hanging", *place, *old).out.splitlines()
    assert len(hanging) == 1 and hanging[0].startswith("Topic")
    assert play("kafka-transactions", "forceTerminateTransaction", "--transactionalId", topic).code == 0
    assert "Ongoing" not in play("kafka-transactions", "describe", "--transactional-id", topic).out


def test_a_transaction_that_its_coordinator_does_not_know_hangs_until_it_is_aborted(
    cli: Cli, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.cli.shims import transactions

    async def forgotten(*arguments: object, **options: object) -> list[object]:
        return []

    topic = cli.topic()
    opened(cli, topic)
    place = ("--topic", topic, "--partition", "0")
    monkeypatch.setattr(transactions, "list_transactions", forgotten)
    found = play("kafka-transactions", "find-hanging", "--broker-id", "1", "--topic", topic,
                 "--max-transaction-timeout", "-1").out.splitlines()  # fmt: skip
    cells = [cell.strip() for cell in found[1].split("\t")]
    assert cells[:2] == [topic, "0"] and cells[5] == "0"
    missing = play("kafka-transactions", "abort", *place, "--start-offset", "7")
    assert missing.code == 1 and "Could not find any open transactions starting at offset 7" in missing.err
    assert play("kafka-transactions", "abort", *place, "--start-offset", "0").code == 0
    row = play("kafka-transactions", "describe-producers", *place).out.splitlines()[1]
    assert row.split("\t")[-1].strip() == "None"


def test_a_transaction_is_aborted_by_its_producer_as_older_brokers_need_it(cli: Cli, play: Play) -> None:
    topic = cli.topic()
    opened(cli, topic)
    place = ("--topic", topic, "--partition", "0")
    row = play("kafka-transactions", "describe-producers", *place).out.splitlines()[1]
    producer_id, epoch, coordinator_epoch = (cell.strip() for cell in row.split("\t")[:3])
    by = ("--producer-id", producer_id, "--producer-epoch", epoch)
    missing = play("kafka-transactions", "abort", *place, *by)
    assert (missing.code, missing.err) == (1, "Missing required argument --coordinator-epoch\n")
    done = play("kafka-transactions", "abort", *place, *by, "--coordinator-epoch", coordinator_epoch)
    assert done.code == 0, done


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "requires either --topic or --broker-id to limit the scope of the search"),
        (("--broker-id", "1", "--partition", "0"), "The --partition argument requires --topic to be provided"),
    ],
)
def test_a_search_for_hanging_transactions_has_a_scope(play: Play, arguments: tuple[str, ...], reason: str) -> None:
    said = play("kafka-transactions", "find-hanging", *arguments)
    assert said.code == 1 and reason in said.err
