"""After a start, readiness waits until the broker's replicas have been in sync once, but only for replicas that can be."""

from __future__ import annotations

from typing import NamedTuple

from ottla.node.admin import InSyncOnce
from tests.controller.harness import DecisionHarness, topic_id

TIMEOUT_MS = 600_000


class Local(NamedTuple):
    topic_id: bytes
    index: int = 0
    log: object | None = "a log"


def test_replicas_that_are_behind_are_missed_until_all_have_been_in_sync_once() -> None:
    cluster, once = DecisionHarness(), InSyncOnce(TIMEOUT_MS)
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.topic("payments", "1 2 3")
    here = [Local(topic_id("orders")), Local(topic_id("payments"))]
    assert once.missing(3, here, cluster.image, 0) == 1
    assert InSyncOnce(TIMEOUT_MS).missing(2, here, cluster.image, 0) == 0
    cluster.topic("orders", "1 2 3")
    assert once.missing(3, here, cluster.image, 1) == 0
    cluster.topic("orders", "1 2 3", isr="1 2")
    assert once.missing(3, here, cluster.image, 2) == 0, "a follower that lags later is no matter of readiness"


def test_what_cannot_catch_up_is_not_waited_for() -> None:
    cluster = DecisionHarness(brokers=4)
    cluster.topic("orders", "1 2 3", isr="1 2")
    cluster.fence(1, 2)
    cluster.topic("payments", "4 3", isr="4")
    here = [Local(topic_id("orders")), Local(topic_id("payments"), log=None), Local(topic_id("deleted"))]
    assert cluster.partition("orders").leader == -1
    assert InSyncOnce(TIMEOUT_MS).missing(3, here, cluster.image, 0) == 0


def test_a_replica_that_never_catches_up_does_not_stop_an_update_for_good() -> None:
    cluster, once = DecisionHarness(), InSyncOnce(TIMEOUT_MS)
    cluster.topic("orders", "1 2 3", isr="1 2")
    here = [Local(topic_id("orders"))]
    assert once.missing(3, here, cluster.image, 5) == 1
    assert once.missing(3, here, cluster.image, 4 + TIMEOUT_MS) == 1
    assert once.missing(3, here, cluster.image, 5 + TIMEOUT_MS) == 0
