"""A classic group whose leader joins again whenever it is stable, so that all members do: JoinGroup, SyncGroup, Heartbeat.

The members behave as the Java client does: they learn of a rebalance by one of their heartbeats, every 3 s, and send all other
requests at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from benchmarks.connections import allow_files
from benchmarks.groups import Connection
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION = 9, 5, 4
HEARTBEAT_SECONDS = 3.0
SESSION_MS = 45_000
REBALANCE_MS = 60_000
#: The subscription of a member, version 0. It names no topics, because only the group is measured.
SUBSCRIPTION = bytes(2 + 4 + 4)
#: An assignment with the bytes of about ten partitions.
ASSIGNMENT = bytes(100)
STABLE_SECONDS_MAX = 120
SPARE_FILES = 200
LOOK_SECONDS = 0.02
#: The errors that a member meets while it joins. Every other error comes from a coordinator that is not ready.
EXPECTED = (
    ErrorCode.NONE,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.ILLEGAL_GENERATION,
)


class ClassicMember(Connection):
    """One member of a group."""

    def __init__(self, group_id: str) -> None:
        self.group_id, self.id = group_id, ""
        #: The generation in which the member is stable; -1 while it joins.
        self.generation = -1
        self.is_leader = False
        self.joins_again = asyncio.Event()

    async def run(self, port: int) -> None:
        await self.open(port)
        while True:
            self.generation = await self.joined()
            if self.generation >= 0:
                await self.beat()
            self.generation = -1

    async def joined(self) -> int:
        """Return the generation once the member has its assignment, -1 if it has to join again."""
        request = JoinGroupRequest(self.group_id, SESSION_MS, REBALANCE_MS, self.id, None, "consumer")
        request.protocols = [ClassicProtocol("range", SUBSCRIPTION)]
        answer = await self.request(ApiKey.JOIN_GROUP, request, JOIN_VERSION)
        self.id = answer.member_id or self.id
        if await self.failed(answer.error_code):
            return -1
        generation, self.is_leader = answer.generation_id, answer.leader == self.id
        parts = [SyncGroupRequestAssignment(each.member_id, ASSIGNMENT) for each in answer.members if self.is_leader]
        sync = SyncGroupRequest(self.group_id, generation, self.id, None, "consumer", "range", parts)
        answer = await self.request(ApiKey.SYNC_GROUP, sync, SYNC_VERSION)
        return -1 if await self.failed(answer.error_code) else generation

    async def beat(self) -> None:
        """Send heartbeats; return when the member has to join again."""
        while True:
            try:
                await asyncio.wait_for(self.joins_again.wait(), HEARTBEAT_SECONDS)
            except TimeoutError:
                heartbeat = HeartbeatRequest(self.group_id, self.generation, self.id, None)
                answer = await self.request(ApiKey.HEARTBEAT, heartbeat, HEARTBEAT_VERSION)
                if await self.failed(answer.error_code):
                    return
            else:
                self.joins_again.clear()
                return

    async def failed(self, error: int) -> bool:
        if error == ErrorCode.UNKNOWN_MEMBER_ID:
            self.id = ""
        elif error not in EXPECTED:
            await asyncio.sleep(0.2)  # the coordinator is loading, or its topic is being created
        return error != ErrorCode.NONE


async def stable(members: list[ClassicMember], after: int) -> int:
    """Wait until all members are stable in one generation after `after`, and return it."""
    until = time.monotonic() + STABLE_SECONDS_MAX
    while time.monotonic() < until:
        generations = {each.generation for each in members}
        if len(generations) == 1 and (generation := generations.pop()) > after:
            return generation
        await asyncio.sleep(LOOK_SECONDS)
    raise TimeoutError(f"the group is not stable after {STABLE_SECONDS_MAX} s")


async def rebalancing(
    options: dict[str, Any], begun: Callable[[], None], has_ended: Callable[[], bool]
) -> dict[str, float]:
    """Make a stable group of `members` at the coordinator's `port`. Between `begun` and `has_ended` its leader joins again and
    again.
    """
    allow_files(options["members"] + SPARE_FILES)
    members = [ClassicMember(options["group"]) for _ in range(options["members"])]
    tasks = [asyncio.create_task(each.run(options["port"])) for each in members]
    generation = await stable(members, 0)
    await asyncio.to_thread(begun)  # heartbeats are sent meanwhile
    count, begin = 0, time.perf_counter()
    while not has_ended():
        next(each for each in members if each.is_leader).joins_again.set()
        generation = await stable(members, generation)
        count += 1
    seconds = time.perf_counter() - begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return {"rebalances": count, "seconds": seconds}
