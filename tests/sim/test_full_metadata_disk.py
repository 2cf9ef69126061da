"""A quorum on full disks: it rejects writes, votes and follows with its reserve, waits without one, and goes on by itself when
there is space.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ottla.controller.raft.driver import RaftNode
from ottla.controller.raft.effects import Effects
from ottla.controller.raft.metadata_log import RESERVE
from ottla.controller.raft.raft_config import RaftConfig
from ottla.controller.raft.shortage import LOOK_MS, LogWriter
from ottla.controller.raft.voters import QuorumEndpoint, ReplicaKey, Voter, VoterSet
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.storage.errors import DiskFull
from ottla.storage.reserve import PIECE_BYTES, RESERVE_BYTES
from tests.sim.disk import CAPACITY_BYTES
from tests.sim.loop import run
from tests.sim.network import SimHub
from tests.sim.raft_history import DATA, PORT, Replica, Truth

RESERVE_PATH = f"{DATA}/__cluster_metadata-0/{RESERVE}"


@asynccontextmanager
async def quorum(voters: int, reserve_bytes: int = RESERVE_BYTES) -> AsyncIterator[list[Replica]]:
    rng = random.Random(1)
    hub, truth = SimHub(rng), Truth()
    endpoints = [QuorumEndpoint("CONTROLLER", f"host{i}", PORT) for i in range(1, voters + 1)]
    static = VoterSet.of(Voter(ReplicaKey(i + 1), (endpoint,)) for i, endpoint in enumerate(endpoints))
    replicas = []
    for i, endpoint in enumerate(endpoints, 1):
        config = RaftConfig(
            i, i.to_bytes(16, "big"), "sim", (endpoint,), static_voters=static, reserve_bytes=reserve_bytes
        )
        replicas.append(Replica(i, hub, rng, config, truth))
    for replica in replicas:
        await replica.start()
    await until(lambda: leader_of(replicas) is not None, "a leader")
    yield replicas
    for replica in replicas:
        assert replica.raft.failure is None, f"replica {replica.number} has ended: {replica.raft.failure}"


def in_simulation(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def simulated() -> None:
        run(test())

    simulated.__name__, simulated.__doc__ = test.__name__, test.__doc__
    return simulated


async def until(condition: Callable[[], bool], what: str, seconds: float = 60) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, f"no {what} in {seconds} s"
        await asyncio.sleep(0.01)


def leader_of(replicas: Iterable[Replica]) -> Replica | None:
    """The leader that all of these follow."""
    replicas = list(replicas)
    leaders = [each for each in replicas if each.is_up and each.raft.is_leader]
    newest = max(leaders, key=lambda each: each.raft.state.epoch, default=None)
    if newest is None or any(each.raft.state.leader_id != newest.number for each in replicas):
        return None
    return newest


def fill(*replicas: Replica) -> None:
    for replica in replicas:
        replica.host.disk.room_bytes = replica.host.disk.used_bytes()


def free(*replicas: Replica) -> None:
    for replica in replicas:
        replica.host.disk.room_bytes = CAPACITY_BYTES


def refusal(replica: Replica) -> KafkaError:
    """Append until the log's allocated space is used up."""
    for number in range(1000):
        try:
            replica.raft.append_atomic([b"%d" % number * 100])
        except KafkaError as refused:
            return refused
    raise AssertionError("the disk is never full")


def reserved(replica: Replica) -> int:
    return replica.host.disk.size(RESERVE_PATH) or 0


async def committed(replicas: Iterable[Replica], record: bytes) -> None:
    """Append until the record is in every state: a leader may resign meanwhile."""
    replicas = list(replicas)

    def everywhere() -> bool:
        leader = leader_of(replicas)
        if leader is not None and record not in leader.state.records:
            try:
                leader.raft.append([record])
            except KafkaError:
                return False
        return all(record in each.state.records for each in replicas)

    await until(everywhere, f"{record!r} everywhere")


@in_simulation
async def test_the_only_voter_refuses_on_a_full_disk_leads_on_and_takes_appends_again_with_room() -> None:
    async with quorum(1) as (replica,):
        fill(replica)
        refused = refusal(replica)
        assert refused.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "no space left" in str(refused), "the client gets the reason"
        end, epoch = replica.raft.log_end_offset, replica.raft.state.epoch
        await asyncio.sleep(600)
        assert refusal(replica).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (replica.raft.log_end_offset, replica.raft.state.epoch) == (end, epoch)
        assert replica.raft.is_leader and replica.raft.shortage is not None
        assert reserved(replica) == RESERVE_BYTES, "the reserve is not for clients"
        await until(lambda: replica.raft.state.high_watermark == end, "commit of what was taken")
        free(replica)
        replica.raft.append([b"again"])
        await until(lambda: b"again" in replica.state.records and replica.raft.shortage is None, "commit")


@in_simulation
async def test_a_leader_on_a_full_disk_lets_a_voter_with_room_lead_and_follows_it() -> None:
    async with quorum(3) as replicas:
        full = leader_of(replicas)
        assert full is not None
        others = [each for each in replicas if each is not full]
        fill(full)
        refusal(full)
        await until(lambda: leader_of(replicas) in others, "another leader")
        await committed(replicas, b"while it is full")
        assert 0 < reserved(full) < RESERVE_BYTES, "it has followed by its reserve"
        free(full)
        await until(lambda: reserved(full) == RESERVE_BYTES and full.raft.shortage is None, "reserve again")


@in_simulation
async def test_a_quorum_whose_disks_are_all_full_settles_with_a_leader_and_goes_on_with_room() -> None:
    async with quorum(3) as replicas:
        fill(*replicas)
        for _ in range(120):
            leader = leader_of(replicas)
            if leader is not None:
                refusal(leader)
            await asyncio.sleep(0.5)
        assert leader is not None and max(each.raft.state.epoch for each in replicas) < 20
        assert leader.raft.is_leader and refusal(leader).code == ErrorCode.KAFKA_STORAGE_ERROR
        assert all(reserved(each) > 0 for each in replicas)
        free(*replicas)
        await committed(replicas, b"again")
        await until(lambda: all(each.raft.shortage is None for each in replicas), "room to be noticed")


@in_simulation
async def test_voters_with_full_disks_elect_a_leader_by_their_reserves() -> None:
    async with quorum(3) as replicas:
        leader = leader_of(replicas)
        assert leader is not None
        others = [each for each in replicas if each is not leader]
        fill(*others)
        await leader.crash(power=False)
        await until(lambda: leader_of(others) is not None, "a leader of those two")
        assert all(RESERVE_BYTES - reserved(each) <= 3 * PIECE_BYTES for each in others)
        await leader.start()
        free(*others)
        await committed(replicas, b"again")


@in_simulation
async def test_a_follower_without_a_reserve_stands_still_and_catches_up_with_room() -> None:
    async with quorum(3, reserve_bytes=0) as replicas:
        leader = leader_of(replicas)
        assert leader is not None
        full, other = (each for each in replicas if each is not leader)
        await committed(replicas, b"first")
        # the leader's epoch is on the disk; otherwise its flush would wait for space instead of the core
        await asyncio.sleep(1)
        fill(full)
        for number in range(100):
            leader.raft.append([b"%d" % number * 100])
        await until(lambda: b"99" * 100 in other.state.records, "commit by the two others")
        await asyncio.sleep(120)
        assert full.raft.shortage is not None and not full.raft.is_in_touch
        assert leader_of([leader, other]) is not None
        free(full)
        await committed(replicas, b"again")


@in_simulation
async def test_a_flush_that_finds_no_room_for_an_epoch_is_tried_again() -> None:
    """The epoch of a new leader is in a small separate file, which the flush replaces."""
    async with quorum(1, reserve_bytes=0) as (replica,):
        calls = 0

        def full(kind: str, path: str) -> None:
            nonlocal calls
            if kind == "write" and path.endswith("leader-epoch-checkpoint.tmp"):
                calls += 1
                if calls <= 3:
                    raise DiskFull(path, OSError(errno.ENOSPC, "no space left"))

        replica.host.disk.on_call = full
        replica.raft.resign(replica.raft.state.epoch)
        await until(lambda: leader_of([replica]) is not None, "a new epoch")
        await committed([replica], b"again")
        assert calls > 3


@in_simulation
async def test_the_log_says_it_once_a_minute_and_when_there_is_room() -> None:
    said: list[str] = []

    class Said(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(f"{record.levelname} {record.getMessage()}")

    handler, logger = Said(), logging.getLogger("ottla.controller.raft.shortage")
    logger.addHandler(handler)
    try:
        async with quorum(1) as (replica,):
            fill(replica)
            for _ in range(150):
                refusal(replica)
                await asyncio.sleep(1)
            free(replica)
            await asyncio.sleep(2 * LOOK_MS / 1000)
    finally:
        logger.removeHandler(handler)
    errors = [line for line in said if line.startswith("ERROR")]
    assert len(errors) == 3 and all("no space left" in line for line in errors)


def ends_on_a_full_disk(self: LogWriter, effects: Effects) -> bool:
    self._log.write(effects, self._clock.wall_ms())
    return True


def steps_before_the_last_is_written(self: RaftNode) -> bool:
    return self.failure is None and not self._stopped


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (LogWriter, "write", ends_on_a_full_disk),
        (RaftNode, "_takes_steps", property(steps_before_the_last_is_written)),
    ],
    ids=["the replica ends", "the core goes on"],
)
def test_it_is_noticed_if(owner: type, name: str, wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        test_a_follower_without_a_reserve_stands_still_and_catches_up_with_room()
