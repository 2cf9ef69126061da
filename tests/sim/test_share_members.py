"""The simulated members of share groups act like Kafka's consumers when a response is lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from ottla.broker.share.in_flight import AcknowledgeType
from tests.broker.groups.cluster import id_of
from tests.broker.groups.share.harness import CLIENT, ShareGroupHarness
from tests.sim.clients.connection import REQUEST_TIMEOUT_MS, Unreachable
from tests.sim.clients.share_ledger import Answered, Session, ShareLedger
from tests.sim.clients.share_members import ShareGroup, ShareMember, unsettled
from tests.sim.history import History
from tests.sim.loop import run
from tests.sim.network import SimHub

TOPIC = "orders"
PARTITIONS = [(TOPIC, index) for index in range(3)]
SECONDS_MAX = 30


class Member(ShareMember):
    """It is connected to a coordinator in memory, and to no leader. The first answer with partitions is lost."""

    groups: ShareGroupHarness
    has_lost = False

    async def coordinator(self, key: str, key_type: int) -> int:
        return 1

    async def ask_any(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        raise Unreachable("there is no leader")

    async def ask_node(self, number: int, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        answer = self.groups.share.heartbeat(request, CLIENT)
        self.groups.advance()  # the persister does its part
        if not self.has_lost and answer.assignment is not None and answer.assignment.topic_partitions:
            self.has_lost = True
            raise Unreachable("the answer is lost")
        return answer


def test_a_member_that_lost_the_answer_with_its_assignment_gets_it_with_the_next_one() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        member = Member("s0", SimHub(random.Random(1)), random.Random(2), [], History(loop.time))
        member.groups, member.topic_ids = ShareGroupHarness({TOPIC: len(PARTITIONS)}), {TOPIC: id_of(TOPIC)}
        member.group = ShareGroup(
            "g", PARTITIONS, ShareLedger(5), {}, lambda *_: None, is_configured=True, is_calm=True
        )
        member.start()
        while unsettled([member]) is not None:
            assert loop.time() < SECONDS_MAX, unsettled([member])
            await asyncio.sleep(0.1)
        assert member.has_lost
        await member.close()

    run(main())


def test_a_renewal_after_the_lock_has_ended_renews_nothing() -> None:
    """Any response about a record behind the group's start is NONE: it proves neither a lock nor that an acceptance arrived in
    time.
    """
    ledger, partition = ShareLedger(4), (TOPIC, 0)
    session = Session("s0")

    def acknowledge(kind: AcknowledgeType, sent: float) -> None:
        batches = [(7, 7, [kind])]
        locks = ledger.acknowledging(session, partition, batches)
        ledger.acknowledged(session, partition, batches, locks, Answered(sent, sent, "the leader"), lock_seconds=2)

    ledger.delivered(session, (TOPIC, 0, 7), b"v", 1, Answered(0, 0, "the leader"), lock_seconds=2)
    acknowledge(AcknowledgeType.RENEW, 3)
    acknowledge(AcknowledgeType.ACCEPT, 4)
    assert not ledger.deliveries[TOPIC, 0, 7].is_accepted_in_time
