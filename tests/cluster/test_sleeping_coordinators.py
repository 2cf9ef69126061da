"""Coordinators on three nodes, of which one sleeps: its session has to end before others take over."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla.protocol.errors import ErrorCode
from ottla.testing import Cluster
from tests.broker.conftest import eventually
from tests.broker.wire import Wire
from tests.chaos.exactly_once import read_committed
from tests.cluster.coordinators import transaction_coordinator, transactional_id_at
from tests.cluster.shared import STEADY
from tests.cluster.test_coordinators import (
    LIMIT_SECONDS,
    TRANSACTIONS,
    cluster,
    is_stable_everywhere,
    led_by,
    topic,
)
from tests.cluster.transactor import PRODUCE_VERSION, Transactor

__all__ = ["cluster", "topic"]  # pytest fixtures

pytestmark = pytest.mark.timeout(180)

#: The default session. The other nodes' sessions must not end on a busy machine, and a request meanwhile is answered before the
#: session of the sleeping node ends.
SESSIONS = {"broker_session_timeout_ms": "9000", "broker_heartbeat_interval_ms": "500"}
ASKED_MS, BUSY_MS = 1_000, 7_000


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(3, **SESSIONS, **STEADY) as cluster:
        yield cluster


@pytest.mark.chaos
def test_markers_that_a_killed_coordinator_did_not_write_are_written_by_the_next_one(
    cluster: Cluster, topic: str
) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    partition = led_by(cluster, topic, 3)
    transactor.produce(topic, partition, b"decided")
    cluster.pause(3)  # the sleeping node writes no marker, so that the transaction stays prepared
    transactor.end(commit=True)
    cluster.kill(1)
    cluster.resume(3)
    eventually(lambda: transactor.is_stable(topic, partition), "the marker", LIMIT_SECONDS)
    # For a moment the node that slept may answer from its old state, in which it led and the transaction was open.
    eventually(lambda: read_committed(cluster, topic) == [b"decided"], "the record", LIMIT_SECONDS)


@pytest.mark.chaos
def test_the_end_of_the_next_transaction_waits_for_the_markers_of_the_last_one(cluster: Cluster, topic: str) -> None:
    """A producer with its current epoch is no zombie (invariant 34). Before the fix a transactional program in Go ended by the
    error.
    """
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    partition = led_by(cluster, topic, 3)
    transactor.produce(topic, partition, b"first")
    cluster.pause(3)  # the sleeping node writes no marker, so that the transaction stays prepared
    with Wire(cluster.nodes[1].port) as wire:
        transactor.end(commit=True)
        answers = [wire.request(transactor.end_request(commit=commit)).error_code for commit in (True, False)]
    assert answers == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2
    cluster.resume(3)
    transactor.end(commit=False)
    transactor.produce(topic, partition, b"second")
    transactor.end(commit=True)
    eventually(lambda: read_committed(cluster, topic) == [b"first", b"second"], "both records", LIMIT_SECONDS)


@pytest.mark.chaos
def test_a_request_that_waits_for_a_sleeping_coordinator_is_answered_in_its_own_time(
    cluster: Cluster, topic: str
) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    partition = led_by(cluster, topic, 3)
    with Wire(cluster.nodes[3].port) as wire:
        wire.sock.settimeout((ASKED_MS + BUSY_MS) / 1000)  # the order of requests is invariant 53
        cluster.pause(1)
        request = transactor.produce_request(topic, partition, b"x", timeout_ms=ASKED_MS)
        answer = wire.request(request, PRODUCE_VERSION).responses[0].partition_responses[0]
    assert ErrorCode(answer.error_code) == ErrorCode.NOT_ENOUGH_REPLICAS, "which makes producers ask again"
    transactor.produce(topic, partition, b"x")
    transactor.end(commit=True)
    eventually(lambda: is_stable_everywhere(transactor, topic), "the marker", LIMIT_SECONDS)
    assert read_committed(cluster, topic) == [b"x"]


@pytest.mark.chaos
def test_a_coordinator_that_slept_while_another_took_over_ends_nothing_a_second_time(
    cluster: Cluster, topic: str
) -> None:
    transactor = Transactor(cluster, transactional_id_at(cluster, 1, topic))
    transactor.produce(topic, led_by(cluster, topic, 2), b"one")
    cluster.pause(1)
    eventually(lambda: transaction_coordinator(cluster, transactor.transactional_id) != 1, "another one", LIMIT_SECONDS)
    transactor.end(commit=True)
    transactor.produce(topic, led_by(cluster, topic, 2), b"two")
    cluster.resume(1)
    eventually(lambda: 1 not in cluster.leaders(TRANSACTIONS).values(), "the news to reach it", LIMIT_SECONDS)
    transactor.end(commit=False)
    eventually(lambda: is_stable_everywhere(transactor, topic), "every marker", LIMIT_SECONDS)
    assert read_committed(cluster, topic) == [b"one"]
