"""Plans of moves in files: what they move, and what is no plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.client.errors import ClusterError
from ottla.client.failures import Kind
from ottla.client.move_plans import moves_between, read_moves, write_moves


def test_a_move_counts_the_bytes_of_its_new_replicas() -> None:
    before = {("t", 0): [1, 2], ("t", 1): [1, 2], ("t", 2): [1, 2]}
    after = {("t", 0): [3, 4], ("t", 1): [2, 1], ("t", 2): [1, 2]}
    moves = moves_between(before, after, {("t", 0): 10, ("t", 1): 10})
    assert [(move.place, move.bytes, move.changes_leader) for move in moves] == [
        (("t", 0), 20, True),
        (("t", 1), 0, True),
    ]
    assert moves[0].adding == [3, 4]


def test_a_plan_that_was_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    replicas = {("t", 1): [2, 3], ("ü", 0): [1]}
    file.write_bytes(write_moves(replicas))
    assert read_moves(str(file)) == replicas


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b"[]", "no partitions"),
        (b'{"partitions": []}', "no partitions"),
        (b'{"partitions": [1]}', "partitions[0]: an object"),
        (b'{"partitions": [{"topic": 1, "partition": 0, "replicas": [1]}]}', "topic is no name"),
        (b'{"partitions": [{"topic": "t", "partition": true, "replicas": [1]}]}', "partition is no number"),
        (b'{"partitions": [{"topic": "t", "partition": -1, "replicas": [1]}]}', "partition is no number"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "no list of brokers"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "no list of brokers"),
        (b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1, 1]}]}', "is twice"),
        (
            b'{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 is there twice",
        ),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(tmp_path: Path, text: bytes, says: str) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(text)
    with pytest.raises(ClusterError) as failed:
        read_moves(str(file))
    assert says in failed.value.cause and failed.value.kind is Kind.WRONG
