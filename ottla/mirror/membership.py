"""The lanes of this worker are assigned by Kafka's group protocol in the target: type `ottla-mirror`, the members' metadata and
assignments in JSON.

A rebalance does not stop the mirror. When a lane is assigned to another worker, that worker's first request fences this one,
whatever it is doing then.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.client.consumer_members import ClassicMember, GroupProtocol
from ottla.client.errors import check
from ottla.client.failures import Failure
from ottla.mirror.opposite import PROTOCOL_TYPE, Brings
from ottla.mirror.shares import LANES, PROTOCOL, share
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment

SESSION_MS = 10_000
REBALANCE_MS_MAX = 30_000
HEARTBEATS_A_SESSION = 6
RETRY_S = 1.0


class Refused(Failure):
    """The other workers of the group have other options."""


class Membership:
    """A member of the group.

    `weights` returns the number of partitions of each lane, and `on_lanes` is called with the lanes of each generation.

    `brings` is the information for other mirrors (opposite.py). `does` has the options that must be the same in all workers of
    the group: a worker with other options gets no lanes, and ends. The options of the workers with lanes count; if none has
    lanes, those of the leader.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        weights: Callable[[], Mapping[int, int]],
        on_lanes: Callable[[set[int]], None],
        on_failure: Callable[[str], None],
        brings: Callable[[], Brings],
        does: Callable[[], dict[str, object]],
        session_ms: int = SESSION_MS,
    ) -> None:
        self.lanes: set[int] = set()
        self._member = ClassicMember(
            cluster, group, GroupProtocol(PROTOCOL_TYPE, PROTOCOL, session_ms, REBALANCE_MS_MAX), ATTEMPT_MS_MAX
        )
        self._session_ms = session_ms
        self._weights = weights
        self._on_lanes = on_lanes
        self._on_failure = on_failure
        self._brings = brings
        self._does = does
        self._shares: dict[str, list[int]] = {}
        self._beats = 0
        self._beaten = asyncio.Condition()

    async def run(self) -> None:
        """Take part in the group for ever.

        Without a coordinator the lanes are kept: if no other worker can get them, this one goes on.

        Raises:
            Refused: the other workers have other options.
        """
        while True:
            try:
                await self._generation()
            except Refused:
                raise
            except (Failure, TimeoutError, ValueError) as fault:
                self._on_failure(f"the group of the workers: {fault or 'time is up'}; it is tried again")
                await asyncio.sleep(RETRY_S)

    async def confirm(self) -> None:
        """Wait for the coordinator's response to a heartbeat, or for an assignment, that was requested after this call."""
        async with self._beaten:
            wanted = self._beats + 2
            await self._beaten.wait_for(lambda: self._beats >= wanted)

    async def leave(self) -> None:
        """Leave the group, so that the others get the lanes at once."""
        with suppress(Failure, TimeoutError):
            async with asyncio.timeout(ATTEMPT_MS_MAX / 1000):
                await self._member.leave("the mirror stops")

    async def _generation(self) -> None:
        said = {"lanes": sorted(self.lanes), "brings": self._brings().encoded(), "does": self._does()}
        joined = await self._member.join(json.dumps(said).encode())
        if joined is None:
            return
        data = await self._member.sync(joined, self._assignments(joined))
        if data is None:
            return
        if (others := _said(data).get("refused")) is not None:
            raise self._refusal(others)
        self._member.generation = joined.generation_id
        self.lanes = set(_lanes(data))
        self._on_lanes(self.lanes)
        while True:
            await self._beat()
            await asyncio.sleep(self._session_ms / HEARTBEATS_A_SESSION / 1000)
            code = await self._member.heartbeat(self._session_ms)
            if self._member.is_out(code) or self._is_uneven():
                return
            check(f"group {self._member.group}", code)

    def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Assign as the leader of the group."""
        self._shares = {}
        if joined.leader != joined.member_id or joined.skip_assignment:
            return []
        said = {member.member_id: _said(bytes(member.metadata)) for member in joined.members}
        owned = {member.member_id: _lanes(bytes(member.metadata)) for member in joined.members}
        first = max(owned, key=lambda member: (len(owned[member]), member == joined.leader, member))
        does = said[first].get("does")
        self._shares = share(
            {name: row for name, row in owned.items() if said[name].get("does") == does}, self._weights()
        )
        rows: dict[str, dict[str, object]] = {name: {"lanes": [], "refused": does} for name in owned}
        rows |= {name: {"lanes": lanes} for name, lanes in self._shares.items()}
        return [SyncGroupRequestAssignment(member, json.dumps(row).encode()) for member, row in rows.items()]

    def _refusal(self, others: object) -> Refused:
        ours, theirs = self._does(), others if isinstance(others, dict) else {}
        rows = [
            f"{name} {theirs.get(name)} there, {value} here"
            for name, value in ours.items()
            if theirs.get(name) != value
        ]
        return Refused(
            f"the workers of group {self._member.group} that run do something else: {'; '.join(rows)}",
            "all workers of one pair of aliases share their partitions, so start each with the same options, or stop the others first",
        )

    def _is_uneven(self) -> bool:
        """Return whether the leader would assign differently now, because topics were created or deleted."""
        return len(self._shares) > 1 and share(self._shares, self._weights()) != self._shares

    async def _beat(self) -> None:
        async with self._beaten:
            self._beats += 1
            self._beaten.notify_all()


def _said(data: bytes) -> dict[str, object]:
    """Return the contents of a member's metadata or assignment. Those of another program are empty."""
    try:
        row = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        return {}
    return row if isinstance(row, dict) else {}


def _lanes(data: bytes) -> list[int]:
    """Return the lanes of a member's metadata or assignment.

    Raises:
        ValueError: it is neither metadata nor an assignment.
    """
    try:
        return [lane for lane in map(int, json.loads(data or b'{"lanes": []}')["lanes"]) if 0 <= lane < LANES]
    except (TypeError, KeyError, ValueError, RecursionError) as fault:
        raise ValueError(f"another program is a member of the group: {fault!r}") from None
