"""Sessions of brokers, and the decisions that a heartbeat leads to."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.controller.decisions.broker_heartbeat import process_heartbeat
from ottla.controller.decisions.heartbeats import NEVER_MS, BrokerControlState, Heartbeats
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from tests.controller.harness import DecisionHarness, directory

SESSION_MS = 9_000


class Beating:
    """A cluster whose brokers send heartbeats to one controller."""

    def __init__(self, brokers: int = 3) -> None:
        self.cluster = DecisionHarness(brokers=brokers)
        self.now_ms = 0
        self.heartbeats = Heartbeats(SESSION_MS)
        for broker_id in self.cluster.image.cluster.brokers:
            self.heartbeats.register(broker_id, False, 0)

    def beat(self, broker_id: int, **given: Any) -> BrokerHeartbeatResponse:
        response: BrokerHeartbeatResponse = self.cluster.decide(self.decided(broker_id, **given))
        return response

    def decided(
        self,
        broker_id: int,
        *,
        fence: bool = False,
        shut_down: bool = False,
        offset: int | None = None,
        offline: list[bytes] | None = None,
        cordoned: list[bytes] | None = None,
        leaving: Leaving | None = None,
    ) -> Outcome[BrokerHeartbeatResponse | None]:
        """Return one turn of the decision, which is not replayed yet."""
        cluster = self.cluster
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=cluster.epoch(broker_id),
            current_metadata_offset=10_000 if offset is None else offset,
            want_fence=fence,
            want_shut_down=shut_down,
            offline_log_dirs=offline or [],
            cordoned_log_dirs=cordoned,
        )
        log_end = cluster.offset + 1
        return process_heartbeat(
            cluster.state, self.heartbeats, request, log_end=log_end, now_ms=self.now_ms, leaving=leaving
        )

    def state(self, broker_id: int) -> str:
        broker = self.cluster.image.cluster.brokers[broker_id]
        return f"{'fenced' if broker.fenced else 'unfenced'}{' shutting down' if broker.in_controlled_shutdown else ''}"


def test_a_fenced_broker_is_let_in_once_it_has_read_its_own_registration() -> None:
    beating = Beating()
    beating.cluster.fence(1)
    beating.heartbeats.register(1, True, 0)
    answer = beating.beat(1, offset=beating.cluster.epoch(1) - 1)
    assert (answer.is_caught_up, answer.is_fenced, beating.state(1)) == (False, True, "fenced")
    answer = beating.beat(1, fence=True)
    assert (answer.is_caught_up, answer.is_fenced) == (True, True), "not ready yet, by its own word"
    answer = beating.beat(1)
    assert (answer.is_caught_up, answer.is_fenced, beating.state(1)) == (True, False, "unfenced")


def test_a_silent_broker_is_stale_after_its_session_and_not_before() -> None:
    beating = Beating()
    beating.now_ms = 5_000
    beating.beat(1)
    assert beating.heartbeats.stale(SESSION_MS) == []
    assert beating.heartbeats.stale(SESSION_MS + 1) == [2, 3]
    assert beating.heartbeats.next_expiry_ms() == SESSION_MS + 1
    assert beating.heartbeats.stale(5_001 + SESSION_MS) == [2, 3, 1]


def test_a_lost_connection_shortens_the_session_until_the_next_heartbeat() -> None:
    beating = Beating()
    beating.heartbeats.connection_lost(2, 1_000, 300)
    assert beating.heartbeats.stale(1_300) == []
    assert beating.heartbeats.stale(1_301) == [2]
    beating.now_ms = 1_200
    beating.beat(2)
    assert beating.heartbeats.stale(1_301) == []


def test_a_restarted_broker_may_register_when_its_former_self_is_only_assumed_alive_or_disconnected() -> None:
    beating = Beating(brokers=1)
    assert beating.heartbeats.has_session(1, 0)
    beating.heartbeats.connection_lost(1, 0, 300)
    assert not beating.heartbeats.has_session(1, 0)
    heartbeats = Heartbeats(SESSION_MS)
    heartbeats.assume(1, False, 0)
    assert not heartbeats.has_session(1, 0)
    assert heartbeats.stale(SESSION_MS + 1) == [1], "yet it is fenced only after a whole session"


def test_a_leader_shuts_down_once_its_leaderships_have_moved_and_the_others_know() -> None:
    beating = Beating()
    beating.cluster.topic("orders", "1 2 3")
    answer = beating.beat(1, shut_down=True)
    assert (answer.should_shut_down, beating.state(1)) == (False, "unfenced shutting down")
    assert beating.cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 1"
    moved_at = beating.cluster.offset
    beating.beat(2, offset=moved_at - 1)
    beating.beat(3, offset=moved_at)
    assert not beating.beat(1, shut_down=True).should_shut_down, "broker 2 still thinks that 1 leads"
    beating.beat(2, offset=moved_at)
    answer = beating.beat(1, shut_down=True)
    assert (answer.should_shut_down, answer.is_fenced, beating.state(1)) == (True, True, "fenced shutting down")


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    beating = Beating()
    answer = beating.beat(3, shut_down=True)
    assert (answer.should_shut_down, beating.state(3)) == (True, "fenced shutting down")


def test_a_broker_may_ask_to_be_fenced() -> None:
    beating = Beating()
    assert beating.beat(3, fence=True).is_fenced
    assert beating.state(3) == "fenced"


def test_a_heartbeat_of_a_former_epoch_is_refused() -> None:
    beating = Beating()
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=5)
    with pytest.raises(KafkaError) as refused:
        process_heartbeat(beating.cluster.state, beating.heartbeats, request, log_end=1, now_ms=0)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    request = BrokerHeartbeatRequest(broker_id=77, broker_epoch=5)
    with pytest.raises(KafkaError, match="No broker registration found for broker id 77"):
        process_heartbeat(beating.cluster.state, beating.heartbeats, request, log_end=1, now_ms=0)


def test_failed_and_cordoned_directories_are_written_down_once() -> None:
    beating = Beating(brokers=0)
    beating.cluster.broker(1, directories=2)
    beating.heartbeats.register(1, False, 0)
    beating.beat(1, offline=[directory(1, 1)], cordoned=[directory(1, 2)])
    broker = beating.cluster.image.cluster.brokers[1]
    assert (broker.directories, broker.cordoned_directories) == ((directory(1, 2),), (directory(1, 2),))
    before = beating.cluster.offset
    beating.beat(1, offline=[directory(1, 1)], cordoned=[directory(1, 2)])
    assert beating.cluster.offset == before


def test_without_brokers_nothing_expires() -> None:
    assert Heartbeats(SESSION_MS).next_expiry_ms() == NEVER_MS
    assert BrokerControlState.SHUTDOWN_NOW.fenced and not BrokerControlState.CONTROLLED_SHUTDOWN.fenced


def test_a_failed_directory_takes_its_replicas_out_of_isr_and_elr() -> None:
    """An empty log may be in its place at the next start."""
    beating = Beating()
    cluster = beating.cluster
    cluster.broker(1, directories=2)
    cluster.topic("orders", min_isr=3)
    cluster.topic("paid", min_isr=3)
    cluster.fence(2)
    assert cluster.show("orders") == "replicas 1 2 3 isr 1 3 elr 2 leader 1 epoch 0"
    beating.beat(1, offline=[directory(1)])
    assert cluster.show("orders") == "replicas 1 2 3 isr 3 elr 2 leader 3 epoch 1"


def test_a_broker_whose_directories_have_all_failed_is_fenced_and_writes_no_more_records() -> None:
    beating = Beating()
    cluster = beating.cluster
    cluster.broker(1, directories=2)
    cluster.topic("orders", min_isr=3)
    lost = [directory(1, 1), directory(1, 2)]
    assert beating.beat(1, offline=lost).is_fenced
    assert beating.state(1) == "fenced"
    assert cluster.show("orders") == "replicas 1 2 3 isr 2 3 leader 2 epoch 1"
    records = cluster.offset
    for _ in range(3):
        assert beating.beat(1, offline=lost).is_fenced
    assert cluster.offset == records


def test_a_late_controller_puts_off_sessions_and_lost_connections_at_each_stall() -> None:
    beating = Beating()
    late_ms = 700
    now_ms = SESSION_MS + late_ms
    beating.heartbeats.connection_lost(2, now_ms - late_ms - 100, 100)
    beating.heartbeats.touch(3, False, 10, now_ms)
    assert beating.heartbeats.stale(now_ms) == [1, 2]
    beating.heartbeats.put_off(late_ms, now_ms)
    assert beating.heartbeats.stale(now_ms) == []
    assert set(beating.heartbeats.stale(now_ms + late_ms + 1)) == {1, 2}
    beating.heartbeats.put_off(late_ms, now_ms + late_ms + 1)
    assert beating.heartbeats.stale(now_ms + late_ms + 1) == [], "the heartbeat failed in the first stall, and is due"


def test_a_controller_that_is_late_at_every_look_fences_a_dead_broker_after_four_session_timeouts() -> None:
    beating = Beating()
    late_ms = 100
    now_ms = SESSION_MS + late_ms
    while True:
        beating.heartbeats.put_off(late_ms, now_ms)
        if 1 in beating.heartbeats.stale(now_ms):
            break
        now_ms += late_ms + late_ms
        assert now_ms < 10 * SESSION_MS
    assert now_ms > 4 * SESSION_MS
    beating.heartbeats.touch(1, False, 10, now_ms)
    beating.heartbeats.put_off(late_ms, now_ms + SESSION_MS + 1)
    assert 1 not in beating.heartbeats.stale(now_ms + SESSION_MS + 1), "a heartbeat has come since"


def test_a_session_that_was_put_off_for_long_is_not_in_the_future() -> None:
    beating = Beating()
    beating.heartbeats.put_off(2 * SESSION_MS, 4 * SESSION_MS)
    assert min(beating.heartbeats.since_contact_ms(4 * SESSION_MS).values()) == 0
