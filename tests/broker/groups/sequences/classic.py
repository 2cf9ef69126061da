"""Classic members of a consumer group: a consumer group accepts an unknown member id in JoinGroup, so that members can have
names.
"""

from __future__ import annotations

from typing import Any

from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.sync_group import SyncGroupRequest
from tests.broker.groups.harness import subscription
from tests.broker.groups.sequences.player import Member, names_of
from tests.broker.groups.sequences.transactional import TransactionalPlayer

SESSION_MS, REBALANCE_MS = 30_000, 1_500


class ClassicPlayer(TransactionalPlayer):
    async def classic_join(self, member: Member, topics: str = "t", protocol: str = "range") -> Any:
        protocols = [
            ClassicProtocol(name, subscription(*map(self.topic, names_of(topics)))) for name in names_of(protocol)
        ]
        request = JoinGroupRequest(
            self.group, SESSION_MS, REBALANCE_MS, member.id, protocol_type="consumer", protocols=protocols
        )
        answer = await self.side.request(request, 9)
        if not answer.error_code:
            member.advance(answer.generation_id)
        return answer

    async def classic_sync(self, member: Member, epoch: str = "same") -> Any:
        request = SyncGroupRequest(self.group, member.epoch_of(epoch), member.id, None, "consumer", "range")
        return await self.side.request(request, 5)

    async def classic_beat(self, member: Member, epoch: str = "same") -> Any:
        return await self.side.request(HeartbeatRequest(self.group, member.epoch_of(epoch), member.id), 4)

    async def classic_leave(self, member: Member) -> Any:
        return await self.side.request(LeaveGroupRequest(self.group, members=[MemberIdentity(member.id)]), 5)
