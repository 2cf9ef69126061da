"""A partition continues although its source does not fit its position: each row of docs/MIRROR.md, with its message and count."""

from __future__ import annotations

import asyncio
import random

import pytest

from ottla.mirror.beginnings import Beginnings, Losses
from ottla.mirror.positions import MirrorPosition
from tests.sim.mirror_client import ModelClient, Process
from tests.sim.mirror_model import ModelCluster

PLACE = ("t", 0)
OTHER = b"\xff" * 16


def cluster(epochs: list[int], start: int = 0) -> ModelCluster:
    """A topic with a batch of five records in each epoch; the log begins at `start`."""
    made = ModelCluster("west", random.Random(1))
    log = made.create("t", 1).logs[0]
    for epoch in epochs:
        log.epoch = epoch
        made.write("t", 0, [b"v"] * 5)
    log.start = start
    log.entries = [entry for entry in log.entries if entry.end > start]
    return made


def begin(
    source: ModelCluster, position: MirrorPosition | None, *, is_out_of_range: bool = False
) -> tuple[int, Losses, str]:
    said: list[str] = []

    async def ask() -> int:
        beginnings = Beginnings(ModelClient(source, Process(source.rng)), {}, said.append)
        if is_out_of_range:
            beginnings.out_of_range.add(PLACE)
        found = {} if position is None else {PLACE: position}
        begins = await beginnings.of([PLACE], found)
        beginnings.out_of_range |= {PLACE} if is_out_of_range else set()
        assert await beginnings.of([PLACE], found) == begins, "it is said once, and the same again"
        losses.append(beginnings.losses)
        return begins[PLACE].position.next_offset

    losses: list[Losses] = []
    return asyncio.run(ask()), losses[0], "".join(said)


@pytest.mark.parametrize(
    ("epochs", "start", "position", "expected", "losses", "text"),
    [
        pytest.param([0, 1], 0, None, 0, Losses(), "", id="no position"),
        pytest.param([0, 1], 0, MirrorPosition(7, None, 1), 7, Losses(), "", id="nothing has happened"),
        pytest.param([0], 0, MirrorPosition(3, OTHER, 0), 0, Losses(recreated=1), "created again", id="another topic"),
        pytest.param(
            [0, 1], 5, MirrorPosition(2, None, 0), 5, Losses(offsets=3), "deleted by retention", id="retention"
        ),
        pytest.param([0, 2], 0, MirrorPosition(9, None, 1), 5, Losses(cut=1), "lost offsets 5 to 8", id="cut"),
        pytest.param(
            [0, 1], 0, MirrorPosition(8, None, 4), 0, Losses(cut=1), "lost offsets 0 to 7", id="earlier epoch"
        ),
    ],
)
def test_where_a_partition_goes_on(
    epochs: list[int], start: int, position: MirrorPosition | None, expected: int, losses: Losses, text: str
) -> None:
    source = cluster(epochs, start)
    if position is not None and position.topic_id is None:
        position = position._replace(topic_id=source.topics["t"].id)
    at, counted, said = begin(source, position)
    assert (at, counted) == (expected, losses)
    assert said.count("t-0") == (text != "") and text in said


def test_of_mirror_makers_position_only_the_end_of_the_source_is_seen() -> None:
    assert begin(cluster([0, 2]), MirrorPosition(9)) == (9, Losses(), "")
    at, counted, said = begin(cluster([0]), MirrorPosition(9), is_out_of_range=True)
    assert (at, counted) == (0, Losses(recreated=1)) and "the source ends before offset 9" in said
