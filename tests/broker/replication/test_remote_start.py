"""A follower whose log ends before its leader's local start offset: its requests, the offset at which it begins, and that no
old finding counts after a wait (KIP-405).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.replication.fetcher import LeaderFetcher
from ottla.broker.replication.remote_start import RETRY_MS
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import PartitionData
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.storage.log.log import Log
from ottla.storage.log.truncate import Restored
from ottla.storage.log_config import LogConfig
from tests.broker.records import batch
from tests.broker.replication.test_fetcher import LEADER
from tests.broker.replication.test_fetcher_answers import SETTINGS, Follower
from tests.broker.replication.test_partition import NOW_MS
from tests.broker.replication.test_stale_truncations import CHANGES, offsets_asked
from tests.storage.logs_for_tests import open_at

#: The leader's log: it starts at 5, on its disk at 50, the store has it up to 79; epoch 1 ended at 20, epoch 3 goes on.
START, LOCAL, TIERED_TO = 5, 50, 79
EPOCH_ENDS = {1: 20, 3: 100}
STATE = Restored(60, [(1, 0), (3, 20)], [])
MOVED = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)


class LeadersLog:
    """A channel to the leader."""

    def __init__(self) -> None:
        self.offsets = {-2: START, -4: LOCAL, -5: TIERED_TO}
        self.asked: list[int] = []

    async def request(self, request: object, timeout_ms: int) -> object:
        if isinstance(request, OffsetForLeaderEpochRequest):
            wanted = request.topics[0].partitions[0].leader_epoch
            epoch = max((each for each in EPOCH_ENDS if each <= wanted), default=-1)
            answer = EpochEndOffset(leader_epoch=epoch, end_offset=EPOCH_ENDS.get(epoch, -1))
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[answer])])
        assert isinstance(request, ListOffsetsRequest)
        timestamp = request.topics[0].partitions[0].timestamp
        self.asked.append(timestamp)
        found = ListOffsetsPartitionResponse(offset=self.offsets[timestamp])
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[found])])

    def close(self) -> None:
        return None


class Stored:
    """Remote storage that responds when the test lets it."""

    def __init__(self, *, from_last_tiered: bool = False) -> None:
        self.from_last_tiered = from_last_tiered
        self.asked: list[int] = []
        self.is_leaders: dict[tuple[int, int], bool] = {}
        self.answers: list[asyncio.Future[Restored]] = []

    async def restored(
        self, partition: object, offset: int, is_leaders: Callable[[int, int], Awaitable[bool]]
    ) -> Restored:
        self.asked.append(offset)
        for question in ((3, 59), (3, 100), (1, 19), (1, 20), (2, 30), (0, 3)):
            self.is_leaders[question] = await is_leaders(*question)
        self.answers.append(asyncio.get_running_loop().create_future())
        return await self.answers[-1]


class Scene:
    """A follower, its leader and the store, on a loop that the test runs turn by turn."""

    def __init__(self, log: Log, loop: asyncio.AbstractEventLoop, stored: Stored | None) -> None:
        self.log, self.loop, self.leader, self.stored = log, loop, LeadersLog(), stored
        self.follower = Follower(log)
        fetcher: LeaderFetcher = self.follower.fetcher
        fetcher._settings = replace(SETTINGS, remote_states=stored)
        channel: Any = self.leader
        fetcher.link.channel = channel

    def answer(self, data: PartitionData | None = None) -> None:
        self.follower.answer(data)
        self.run_on()

    def run_on(self) -> None:
        self.follower.clock.advance(RETRY_MS)
        for _ in range(2):  # twice, because a request that was answered may wait once more before the next one
            while self.follower.tasks:
                self.loop.create_task(self.follower.tasks.pop(0))
            for _ in range(40):
                self.loop.run_until_complete(asyncio.sleep(0))
            self.follower.clock.advance(RETRY_MS)

    def store_answers(self, state: Restored | Exception = STATE) -> None:
        assert self.stored is not None
        waiting = self.stored.answers.pop(0)
        if isinstance(state, Exception):
            waiting.set_exception(state)
        else:
            waiting.set_result(state)
        self.run_on()

    @property
    def offsets(self) -> tuple[int, int, int]:
        return self.log.log_start_offset, self.log.local_start_offset, self.log.log_end_offset


@pytest.fixture
def tiered(tmp_path: Path) -> Log:
    log = open_at(tmp_path / "t-0", LogConfig(remote_storage_enable=True))
    for _ in range(3):
        log.append(batch([b"x"]), leader_epoch=0, now_ms=NOW_MS)
    return log


def test_it_begins_behind_a_segment_of_the_leaders_log_and_fetches_there(
    tiered: Log, loop: asyncio.AbstractEventLoop
) -> None:
    stored = Stored()
    scene = Scene(tiered, loop, stored)
    scene.answer(MOVED)
    assert stored.asked == [LOCAL - 1]
    assert stored.is_leaders == {
        (3, 59): True, (3, 100): False, (1, 19): True, (1, 20): False, (2, 30): False, (0, 3): False,
    }  # fmt: skip
    assert scene.offsets == (0, 0, 3), "nothing happens before the store has answered"
    scene.store_answers()
    assert scene.offsets == (START, 60, 60)
    assert tiered.epochs.entries == [(1, START), (3, 20)]
    scene.answer()
    assert offsets_asked(scene.follower)[-1] == 60
    assert scene.follower.protocol.requests[-1].topics[0].partitions[0].last_fetched_epoch == 3


@pytest.mark.parametrize(("has_records", "known", "asked"), [(False, 79, 79), (True, 79, 49), (False, -1, 49)])
def test_an_empty_log_may_begin_behind_all_that_the_store_has(
    tiered: Log, tmp_path: Path, loop: asyncio.AbstractEventLoop, has_records: bool, known: int, asked: int
) -> None:
    """KIP-1023, by follower.fetch.last.tiered.offset.enable; a leader that does not know the store yet is asked for its disk."""
    log = tiered if has_records else open_at(tmp_path / "e-0", LogConfig(remote_storage_enable=True))
    stored = Stored(from_last_tiered=True)
    scene = Scene(log, loop, stored)
    scene.leader.offsets[-5] = known
    scene.answer(MOVED)
    assert stored.asked == [asked]


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_store_answers_in_another_leader_epoch_changes_nothing(
    tiered: Log, loop: asyncio.AbstractEventLoop, change: Callable[[Follower], int]
) -> None:
    scene = Scene(tiered, loop, Stored())
    scene.answer(MOVED)
    change(scene.follower)
    scene.store_answers()
    assert scene.offsets == (0, 0, 3)


def test_records_that_were_appended_meanwhile_stay(tiered: Log, loop: asyncio.AbstractEventLoop) -> None:
    scene = Scene(tiered, loop, Stored())
    scene.answer(MOVED)
    tiered.append(batch([b"x"]), leader_epoch=1, now_ms=NOW_MS)
    scene.store_answers()
    assert scene.offsets == (0, 0, 4)


@pytest.mark.parametrize(("start", "end"), [(61, 60), (START, 3)])
def test_a_state_that_the_leaders_log_start_or_the_own_end_has_passed_is_not_taken_over(
    tiered: Log, loop: asyncio.AbstractEventLoop, start: int, end: int
) -> None:
    scene = Scene(tiered, loop, Stored())
    scene.leader.offsets[-2] = start
    scene.answer(MOVED)
    scene.store_answers(STATE._replace(offset=end))
    assert scene.offsets == (0, 0, 3)
    scene.answer()
    assert offsets_asked(scene.follower)[-1] == 3, "the leader says what is to be done now"


def test_while_the_store_is_away_it_asks_again_and_logs_one_line(
    tiered: Log, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    stored = Stored()
    scene = Scene(tiered, loop, stored)
    scene.answer(MOVED)
    for _ in range(5):
        scene.store_answers(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no answer within 7 ms"))
    assert len(stored.asked) == 6
    assert [record.levelname for record in caplog.records if "waits for remote storage" in record.message] == [
        "WARNING"
    ]
    scene.store_answers()
    assert scene.offsets == (START, 60, 60)


def test_without_remote_storage_here_it_waits_and_says_so(
    tiered: Log, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene(tiered, loop, None)
    scene.answer(MOVED)
    assert "has no remote storage" in caplog.text
    assert scene.offsets == (0, 0, 3)
    assert scene.follower.partition.leader_id == LEADER
