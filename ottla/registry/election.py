"""The election of the leader among the instances, by Kafka's group protocol as in Confluent's registry: type `sr`, protocol
`v0`.

Each member's metadata is its identity in JSON. The member that the coordinator chooses to assign gives all members the same
assignment: the eligible instance with the smallest URL leads, unless there is a leader already. Instances of both registries
can be in one group.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ottla.client.cluster import ATTEMPT_MS_MAX, ClusterClient
from ottla.client.consumer_members import ClassicMember, GroupProtocol
from ottla.client.errors import check
from ottla.client.failures import Failure
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupRequestAssignment
from ottla.registry.errors import RegistryError
from ottla.registry.members import Members

logger = logging.getLogger(__name__)

#: Confluent's kafkagroup.session.timeout.ms and kafkagroup.heartbeat.interval.ms.
SESSION_MS = 10_000
HEARTBEAT_MS = 3_000
REBALANCE_MS_MAX = 30_000
#: The number of heartbeats within a short session: two of them may be lost.
HEARTBEATS_A_SESSION = 3
VERSION = 1
RETRY_S = 0.5
#: With these errors of a first join another attempt is useless: the cluster does not accept the instance's settings.
FINAL = (
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance, by the address at which others reach it."""

    scheme: str
    host: str
    port: int
    eligible: bool = True
    leads: bool = False
    #: A proof of the other fields. Only an instance with the members' secret can make it.
    proof: str = ""

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}"

    def json(self) -> dict[str, Any]:
        row = {
            "version": VERSION,
            "host": self.host,
            "port": self.port,
            "master_eligibility": self.eligible,
            "scheme": self.scheme,
            "leader": self.leads,
        }
        return row | {"proof": self.proof} if self.proof else row

    def proven(self, members: Members | None) -> Identity:
        """Return the identity with its proof. Without a secret there are no proofs."""
        if members is None:
            return self
        bare = replace(self, proof="")
        return replace(bare, proof=members.proof(bare.json()))


def identity_from(data: bytes | Mapping[str, Any]) -> Identity:
    """Return the identity of a member's metadata.

    Raises:
        ValueError: the metadata has no identity.
    """
    try:
        row = json.loads(data) if isinstance(data, bytes | bytearray | memoryview) else data
        eligible, leads = bool(row.get("master_eligibility", True)), bool(row.get("leader", False))
        proof = str(row.get("proof") or "")
        return Identity(row.get("scheme") or "http", str(row["host"]), int(row["port"]), eligible, leads, proof)
    except (KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise ValueError(f"no identity of a registry: {fault!r}") from None


def assign(members: Mapping[str, Identity], secret: Members | None = None) -> dict[str, Any]:
    """Return the assignment for all members, which names the leader.

    With a secret only instances that know it can lead.

    A leader stays the leader while it is in the group. If two instances have the same address, the one that does not lead
    reports it; for the others it is no error.
    """
    known = {name: each for name, each in members.items() if each.eligible and each == each.proven(secret)}
    leading = sorted((each.url, name) for name, each in known.items() if each.leads)
    eligible = sorted((each.url, name) for name, each in known.items())
    leader = next((name for _, name in leading or eligible), None)
    made: dict[str, Any] = {"version": VERSION, "error": 0}
    if leader is not None:
        made |= {"master": leader, "master_identity": members[leader].json()}
    return made


def assigned_from(data: bytes, secret: Members | None = None) -> tuple[str | None, Identity | None]:
    """Return the member id and the identity of the leader in an assignment.

    Raises:
        ValueError: the leader does not know the members' secret, or it is no assignment.
    """
    try:
        row = json.loads(data)
    except RecursionError:
        raise ValueError("the assignment is nested too deeply") from None
    if row.get("error"):
        raise ValueError("two instances advertise the same address: each needs its own --advertise")
    if row.get("master_identity") is None:
        return row.get("master"), None
    identity = identity_from(row["master_identity"])
    if identity != identity.proven(secret):
        raise ValueError(f"the group names a leader that does not know the instances' secret: {identity.url}")
    return row.get("master"), replace(identity, proof="")


class RegistryElection:
    """A member of the group. `on_leader(identity, is_self)` is awaited for each generation, with None if there is no leader."""

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        identity: Identity,
        on_leader: Callable[[Identity | None, bool], Any],
        displaced: asyncio.Event,
        session_ms: int = SESSION_MS,
        secret: Members | None = None,
    ) -> None:
        """Take the time after which the others no longer wait for a silent member.

        `displaced` is set when another instance has fenced this one: an instance that led in an earlier generation, and was
        slow. Without a new generation the group would go on naming this instance, and none would lead.
        """
        protocol = GroupProtocol("sr", "v0", session_ms, REBALANCE_MS_MAX)
        self._session_ms = session_ms
        self._heartbeat_s = min(HEARTBEAT_MS, session_ms / HEARTBEATS_A_SESSION) / 1000
        self._member = ClassicMember(cluster, group, protocol, ATTEMPT_MS_MAX)
        self._identity = identity
        self._on_leader = on_leader
        self._displaced = displaced
        self._secret = secret
        self._has_joined = False

    async def run(self) -> None:
        """Take part in the group for ever. Without a coordinator there is no leader, and the join is repeated.

        Raises:
            Failure: the cluster rejects this instance's settings (FINAL) before it was in any generation.
        """
        while True:
            try:
                await self._generation_of_group()
            except (Failure, RegistryError, TimeoutError, ValueError) as fault:
                if isinstance(fault, Failure) and fault.code in FINAL and not self._has_joined:
                    raise
                logger.warning("the election of the leader: %s; it is tried again", fault)
                await self._lead(None, False)
                await asyncio.sleep(RETRY_S)

    async def leave(self) -> None:
        """Leave the group, so that another instance leads at once."""
        with suppress(Failure, TimeoutError):
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
        self._member.generation = joined.generation_id
        try:
            member, leader = assigned_from(assignment, self._secret)
        except ValueError as fault:
            # The former leader stays: any member of the group can make such an assignment, so it must not replace a leader.
            logger.warning("the election of the leader: %s", fault)
        else:
            if leader is not None and leader.url == self._identity.url and member != self._member.id:
                logger.warning("another instance advertises %s as well: each needs its own --advertise", leader.url)
            await self._lead(leader, member == self._member.id)
        while not await self._is_displaced_within(self._heartbeat_s):
            if not await self._heartbeat():
                return

    async def _is_displaced_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._displaced.wait()
        if self._displaced.is_set():
            self._identity = replace(self._identity, leads=False)
        return self._displaced.is_set()

    async def _lead(self, leader: Identity | None, is_self: bool) -> None:
        self._identity = replace(self._identity, leads=is_self)
        self._displaced.clear()
        await self._on_leader(leader, is_self)

    async def _join(self) -> JoinGroupResponse | None:
        return await self._member.join(
            json.dumps(self._identity.proven(self._secret).json(), separators=(",", ":")).encode()
        )

    async def _sync(self, joined: JoinGroupResponse) -> bytes | None:
        rows: Sequence[SyncGroupRequestAssignment] = ()
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = {member.member_id: identity_from(bytes(member.metadata)) for member in joined.members}
            data = json.dumps(assign(members, self._secret), separators=(",", ":")).encode()
            rows = [SyncGroupRequestAssignment(member, data) for member in members]
        return await self._member.sync(joined, rows)

    async def _heartbeat(self) -> bool:
        """Return whether the member is still in the generation."""
        code = await self._member.heartbeat(self._session_ms)
        if self._member.is_out(code):
            return False
        check(f"group {self._member.group}", code)
        return True
