"""The leader among the instances, by Kafka's group protocol as Confluent's registry elects it: type `sr`, protocol `v0`.

Each member's metadata is its identity in JSON. The member that the coordinator lets assign gives all of them the same assignment:
the eligible instance with the smallest URL, unless there is a leader already, which stays. Instances of both registries can be in
one group.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ottla.cli.client.classic_member import ClassicMember, GroupProtocol
from ottla.cli.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.cli.client.failures import check
from ottla.cli.errors import CommandFailed
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment
from ottla.registry.errors import RegistryError

logger = logging.getLogger(__name__)

#: Confluent's kafkagroup.session.timeout.ms and kafkagroup.heartbeat.interval.ms.
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
REBALANCE_MS_MAX = 30_000
#: Of a shorter session: two heartbeats may be lost.
HEARTBEATS_A_SESSION = 3
VERSION = 1
RETRY_S = 0.5
#: Answers to a first join that a coordinator would only repeat: settings of the instance that the cluster does not take.
FINAL = (
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)
DUPLICATE_URLS = 1


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance as others reach it."""

    scheme: str
    host: str
    port: int
    eligible: bool = True
    leads: bool = False

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.leads,
        }


def identity_from(data: bytes | Mapping[str, Any]) -> Identity:
    """Return the identity of a member's metadata.

    Raises:
        ValueError: it is none.
    """
    try:
        row = json.loads(data) if isinstance(data, bytes | bytearray | memoryview) else data
        eligible, leads = bool(row.get("master_eligibility", True)), bool(row.get("leader", False))
        return Identity(row.get("scheme") or "http", str(row["host"]), int(row["port"]), eligible, leads)
    except (KeyError, TypeError, AttributeError) as fault:
        raise ValueError(f"no identity of a registry: {fault!r}") from None


def assign(members: Mapping[str, Identity]) -> dict[str, Any]:
    """Return the assignment that all members get: who leads, and an error if two of them have the same URL."""
    leading = [name for name, each in members.items() if each.eligible and each.leads]
    eligible = sorted((each.url, name) for name, each in members.items() if each.eligible)
    leader = leading[0] if len(leading) == 1 else eligible[0][1] if eligible else None
    duplicates = len({each.url for each in members.values()}) != len(members)
    made: dict[str, Any] = {"version": VERSION, "error": DUPLICATE_URLS if duplicates else 0}
    if leader is not None:
        made |= {"master": leader, "master_identity": members[leader].json()}
    return made


def assigned_from(data: bytes) -> tuple[str | None, Identity | None]:
    """Return the member id and the identity of the leader that an assignment names.

    Raises:
        ValueError: two instances have the same URL, or it is no assignment.
    """
    row = json.loads(data)
    if row.get("error"):
        raise ValueError("two instances advertise the same address: each needs its own --advertise")
    identity = row.get("master_identity")
    return row.get("master"), None if identity is None else identity_from(identity)


class Election:
    """A member of the group. `on_leader(identity, is_self)` is awaited for each generation, with None while there is no leader."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        identity: Identity,
        on_leader: Callable[[Identity | None, bool], Any],
        session_ms: int = SESSION_MS,
    ) -> None:
        """Takes the time after which the others no longer wait for a member that is silent."""
        protocol = GroupProtocol("sr", "v0", session_ms, REBALANCE_MS_MAX)
        self._session_ms = session_ms
        self._heartbeat_s = min(HEARTBEAT_MS, session_ms / HEARTBEATS_A_SESSION) / 1000
        self._member = ClassicMember(cluster, group, protocol, ATTEMPT_MS_MAX)
        self._identity = identity
        self._on_leader = on_leader
        self._has_joined = False

    async def run(self) -> None:
        """Take part for ever. Without a coordinator there is no leader, and it is tried again.

        Raises:
            CommandFailed: the cluster does not take this instance's settings, before it was in any generation (FINAL).
        """
        while True:
            try:
                await self._generation_of_group()
            except (CommandFailed, RegistryError, TimeoutError, ValueError) as fault:
                if isinstance(fault, CommandFailed) and fault.code in FINAL and not self._has_joined:
                    raise
                logger.warning("the election of the leader: %s; it is tried again", fault)
                await self._lead(None, False)
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Leave the group, so that another instance leads at once."""
        with suppress(CommandFailed, TimeoutError):
            async with asyncio.timeout(ATTEMPT_MS_MAX / 1000):
                await self._member.leave("the registry stops")

    async def _generation_of_group(self) -> None:
        joined = await self._join()
        if joined is None:
            return
        self._has_joined = True
        assignment = await self._sync(joined)
        if not assignment:
            return
        member, leader = assigned_from(assignment)
        self._member.generation = joined.generation_id
        await self._lead(leader, member == self._member.id)
        while True:
            await asyncio.sleep(self._heartbeat_s)
            if not await self._heartbeat():
                return

    async def _lead(self, leader: Identity | None, is_self: bool) -> None:
        self._identity = replace(self._identity, leads=is_self)
        await self._on_leader(leader, is_self)

    async def _join(self) -> JoinGroupResponse | None:
        return await self._member.join(json.dumps(self._identity.json(), separators=(",", ":")).encode())

    async def _sync(self, joined: JoinGroupResponse) -> bytes | None:
        rows: Sequence[SyncGroupRequestAssignment] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = {member.member_id: identity_from(bytes(member.metadata)) for member in joined.members}
            data = json.dumps(assign(members), separators=(",", ":")).encode()
            rows = [SyncGroupRequestAssignment(member, data) for member in members]
        return await self._member.sync(joined, rows)

    async def _heartbeat(self) -> bool:
        """Whether the member is still in the generation."""
        code = await self._member.heartbeat(self._session_ms)
        if self._member.is_out(code):
            return False
        check(f"group {self._member.group}", code)
        return True
