"""Steps of any group with committed offsets: commits in a transaction, and a classic client that is sent a member id and stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.shared_structs import ClassicProtocol
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.groups.harness import subscription
from tests.broker.groups.sequences.player import TRIES_MAX, Member, Player
from tests.broker.groups.sequences.step import actual

#: A timeout that is longer than any sequence.
TRANSACTION_MS = 300_000
CLASSIC_SESSION_MS = 6_000


class TransactionalPlayer(Player):
    """A player with one producer for the whole sequence."""

    _producer: tuple[int, int] | None = None

    async def txn_commit(
        self,
        member: Member,
        epoch: str = "same",
        topic: str = "t",
        partition: str = "0",
        offset: str = "1",
    ) -> Any:
        return await self._txn_commit(member.id, member.epoch_of(epoch), member.instance, topic, partition, offset)

    async def admin_txn_commit(
        self, epoch: str = "-1", topic: str = "t", partition: str = "0", offset: str = "1"
    ) -> Any:
        """Commit offsets in a transaction, by a producer that names the group alone."""
        return await self._txn_commit("", int(epoch), None, topic, partition, offset)

    async def _txn_commit(
        self, member_id: str, epoch: int, instance: str | None, topic: str, partition: str, offset: str
    ) -> Any:
        if self._producer is None:
            started = await self._until_it_passes(
                lambda: self.side.request(InitProducerIdRequest(self._transactional_id, TRANSACTION_MS), 5),
                lambda answer: answer.error_code,
            )
            self._producer = started.producer_id, started.producer_epoch
        row = TxnOffsetCommitRequestPartition(int(partition), int(offset))
        topics = [TxnOffsetCommitRequestTopic(name=self.topic(topic), partitions=[row])]
        request = TxnOffsetCommitRequest(
            self._transactional_id, self.group, *self._producer, epoch, member_id, instance, topics
        )
        return await self._until_it_passes(
            lambda: self.side.request(request, 5), lambda answer: answer.topics[0].partitions[0].error_code
        )

    async def txn_end(self, committed: str = "1") -> str:
        if self._producer is None:
            return "no producer"
        request = EndTxnRequest(self._transactional_id, *self._producer, committed == "1")
        answer = await self._until_it_passes(lambda: self.side.request(request, 5), lambda answer: answer.error_code)
        if not answer.error_code:
            self._producer = answer.producer_id, answer.producer_epoch
        await self.settle()
        return ErrorCode(answer.error_code).name

    async def ask_id(self) -> str:
        """Send the JoinGroup of a classic client that does not come back with the member id it gets."""
        request = JoinGroupRequest(
            self.group,
            CLASSIC_SESSION_MS,
            CLASSIC_SESSION_MS,
            protocol_type="consumer",
            protocols=[ClassicProtocol("range", subscription(self.topic("t")))],
        )
        return ErrorCode((await self.side.request(request, 9)).error_code).name

    @property
    def _transactional_id(self) -> str:
        return actual("x", self.owner)

    async def _until_it_passes(self, ask: Callable[[], Awaitable[Any]], code: Callable[[Any], int]) -> Any:
        """Retry while markers of the former transaction may be on their way."""
        passing = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        for _ in range(TRIES_MAX):
            answer = await ask()
            if code(answer) not in passing:
                break
            await self.settle()
        return answer
