"""A follower takes over from the store the state at the end of a segment of its leader's log, and never that of another
history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.tiers.local_layout import LocalLayout, name_of
from ottla.broker.tiers.objects import EPOCHS_SUFFIX, SNAPSHOT_SUFFIX, TierFailure
from ottla.broker.tiers.partition_tier import TierCount, TierCounts
from ottla.broker.tiers.remote_segments import RemoteSegment, RemoteSegments, RemoteState, changed, started
from ottla.broker.tiers.remote_states import FOLLOWERS, FROM_LAST_TIERED, StoredStates, read_state
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.log.log import Log
from tests.broker.tiers.harness import MemoryStore
from tests.broker.tiers.test_remote_reading import PLACE, copied
from tests.storage.logs_for_tests import SMALL, append, batch, open_at
from tests.workers import OneQueue


class AtOnce(OneQueue):
    async def run(self, function: Any, *args: object) -> Any:
        return function(*args)

    def apart(self, name: str) -> AtOnce:
        return self


def two_epochs(directory: Path) -> Log:
    log = open_at(directory, SMALL)
    for fill in range(40):
        append(log, batch(fill=fill, producer_id=5, producer_epoch=0, base_sequence=fill), epoch=0 if fill < 15 else 2)
    log.advance_high_watermark(40)
    return log


def test_it_is_the_state_that_the_log_had_behind_the_segment(tmp_path: Path) -> None:
    log, store = two_epochs(tmp_path), MemoryStore()
    for index in (0, 1):
        remote = copied(log, index, store)
        state = read_state(LocalLayout(), store, PLACE, remote)
        assert state.offset == log.segments[index + 1].base_offset
        assert state.epochs == [each for each in log.epochs.entries if each[1] < state.offset]
        assert [(each.producer_id, each.last_offset) for each in state.producers] == [(5, remote.end)]


@pytest.mark.parametrize("suffix", [EPOCHS_SUFFIX, SNAPSHOT_SUFFIX])
@pytest.mark.parametrize("data", [None, b"", b"0\n1\n7 0\n", b"0\n0\n", bytes(30)])
def test_a_missing_damaged_or_foreign_object_is_a_failure(tmp_path: Path, suffix: str, data: bytes | None) -> None:
    log, store = two_epochs(tmp_path), MemoryStore()
    remote = copied(log, 1, store)
    name = name_of(PLACE, remote, suffix)
    del store.objects[name]
    if data is not None:
        store.objects[name] = data
    with pytest.raises(TierFailure):
        read_state(LocalLayout(), store, PLACE, remote)


class Asked:
    """Answers for the leader's log by its epochs, which are (epoch, end)."""

    def __init__(self, *ends: tuple[int, int]) -> None:
        self.ends, self.questions = dict(ends), 0

    async def __call__(self, epoch: int, offset: int) -> bool:
        self.questions += 1
        return self.ends.get(epoch, -1) > offset


def states_of(
    store: MemoryStore, copies: Sequence[RemoteSegment] | None, counts: TierCounts | None = None
) -> tuple[StoredStates, list[str]]:
    segments, rounds = (None if copies is None else RemoteSegments()), list[str]()
    for remote in copies or ():
        assert segments is not None
        segments.replay(started(PLACE, remote))
        segments.replay(changed(PLACE, remote.id, RemoteState.COPY_FINISHED, 1, 1))

    async def opened() -> MemoryStore:
        return store

    driver: Any = SimpleNamespace(
        segments_of=lambda _: segments, store=opened, look=lambda: rounds.append("soon"), layout=LocalLayout()
    )
    configs: Any = {FROM_LAST_TIERED: False, FOLLOWERS: 2, CALL_TIMEOUT: 1_000}
    world: Any = SimpleNamespace(workers=AtOnce())
    return StoredStates(world, configs, driver, counts or TierCounts()), rounds


PARTITION: Any = SimpleNamespace(topic=PLACE.topic, topic_id=PLACE.topic_id, index=PLACE.partition)


def test_of_two_copies_the_one_of_the_leaders_history_is_taken(tmp_path: Path) -> None:
    """The other copy reaches further: a deposed leader has copied records that an unclean election then removed from the
    log.
    """
    log, store = two_epochs(tmp_path), MemoryStore()
    right = copied(log, 0, store)
    wrong = copied(log, 1, store)._replace(id=bytes([9] * 16), start=0, epochs=((0, 0), (1, 12)))
    states, _ = states_of(store, [wrong, right])
    leader = Asked((0, 15), (2, 40))
    found = asyncio.run(states.restored(PARTITION, 3, leader))
    assert (found.offset, leader.questions) == (right.end + 1, 2)


def test_with_none_of_the_leaders_history_or_without_metadata_the_follower_waits(tmp_path: Path) -> None:
    log, store = two_epochs(tmp_path), MemoryStore()
    counts = TierCounts()
    states, rounds = states_of(store, [copied(log, 0, store)], counts)
    for leader, offset in ((Asked((0, 3)), 1), (Asked((0, 99)), 39)):
        with pytest.raises(KafkaError) as fault:
            asyncio.run(states.restored(PARTITION, offset, leader))
        assert fault.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert not rounds
    assert (counts.of_all[TierCount.STATES], counts.of_all[TierCount.STATE_ERRORS]) == (2, 2)
    states, rounds = states_of(store, None)
    with pytest.raises(KafkaError, match="not loaded yet"):
        asyncio.run(states.restored(PARTITION, 1, Asked((0, 99))))
    assert rounds == ["soon"]


def test_a_damaged_copy_is_passed_over_if_there_is_another(tmp_path: Path) -> None:
    log, store = two_epochs(tmp_path), MemoryStore()
    whole = copied(log, 1, store)
    damaged = whole._replace(id=bytes([8] * 16))  # a segment whose objects are missing
    states, _ = states_of(store, [damaged, whole])
    found = asyncio.run(states.restored(PARTITION, whole.start, Asked((0, 15), (2, 40))))
    assert found.offset == whole.end + 1
