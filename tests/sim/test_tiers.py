"""Clusters with a store of old segments in simulations with faults, and mistakes that they must notice."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.broker.replication.partition_log import LedLog, led_log
from ottla.broker.tiers import remote_segments, tier_driver
from ottla.broker.tiers.log_bounds import place_of_partition
from ottla.broker.tiers.objects import copy_of
from ottla.broker.tiers.remote_segments import RemoteState, started
from ottla.broker.tiers.tier_driver import CALL_TIMEOUT, TierDriver, _Candidate
from tests.broker.tiers import test_remote_segments as histories_of_leaders
from tests.effort import seeds
from tests.histories import Mistake, assert_noticed, by_name, each_mistake
from tests.sim import tier_lineages
from tests.sim.tier_history import TiersBroken, play

SEEDS = seeds(2, long=60)
ROOT = Path(__file__).parents[2]
#: A mistake must be noticed by one of them.
SEEDS_MAX = 20


@pytest.mark.timeout(900)
def test_each_offset_is_read_as_it_was_acknowledged() -> None:
    """The seeds run in another process, because a seed replays only with the hashes of strings that the runner fixes."""
    command = [sys.executable, "-m", "tests.sim", "--jobs", "1", "--tiers", f"0-{SEEDS - 1}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def a_copy_is_finished_before_its_objects_are_written(patch: pytest.MonkeyPatch) -> None:
    """Local retention trusts the record: if the store then fails, the records are lost."""

    async def copy(self: TierDriver, led: LedLog, candidate: _Candidate) -> None:
        place, remote = place_of_partition(led.partition), candidate.remote
        copied = copy_of(led.log, place, candidate.local, remote)
        store = await self.own_store()
        await self.topic.publish(place, started(place, remote))
        await self.topic.publish(place, self._changed(place, remote, RemoteState.COPY_FINISHED))
        await self._calls.run(self._configs[CALL_TIMEOUT], self.layout.put, store, copied)

    patch.setattr(TierDriver, "_copy", copy)


def a_follower_deletes_by_its_own_clock(patch: pytest.MonkeyPatch) -> None:
    """Records that the store does not have are lost when the replica leads."""
    take_round = TierDriver._round

    async def ahead(self: TierDriver) -> None:
        await take_round(self)
        for partition, own in self._replicas_with_tier():
            if led_log(partition) is None:
                own.remote_end = own.log_end_offset - 1

    patch.setattr(TierDriver, "_round", ahead)


def a_reader_ignores_epochs(patch: pytest.MonkeyPatch) -> None:
    """Any segment with the offset is accepted, also one whose records an unclean election has removed from the log."""
    patch.setattr(remote_segments, "agreement", lambda first, second, start, end: end)


def a_new_leader_keeps_its_log_start(patch: pytest.MonkeyPatch) -> None:
    """Reads of what the former leader has deleted wait until retention has come as far."""
    patch.setattr(tier_driver, "first_readable", lambda log, segments: log.log_start_offset)


#: Without unclean elections the store never has other records than the logs.
OF_LINEAGES = by_name(a_reader_ignores_epochs, a_new_leader_keeps_its_log_start)
OF_CLUSTERS = by_name(a_copy_is_finished_before_its_objects_are_written, a_follower_deletes_by_its_own_clock)
MUTANTS: dict[str, Mistake] = OF_LINEAGES | OF_CLUSTERS


def test_a_model_of_leaders_notices_a_reader_that_ignores_epochs() -> None:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(histories_of_leaders.OtherRecords):
        a_reader_ignores_epochs(patch)
        for seed in range(SEEDS_MAX):
            histories_of_leaders.play(seed)


def is_noticed(name: str, seed: int) -> bool:
    run = play if name in OF_CLUSTERS else tier_lineages.play
    with pytest.MonkeyPatch.context() as patch:
        MUTANTS[name](patch)
        try:
            run(seed)
        except TiersBroken:
            return True
    gc.collect()
    return False


@pytest.mark.parametrize("name", each_mistake(MUTANTS))
def test_a_mistake_is_noticed(name: str) -> None:
    assert_noticed("tiers", name, is_noticed, SEEDS_MAX)
