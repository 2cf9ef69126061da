"""Some Metadata responses wait a moment, so that they do not name a leader that has just died; some fenced brokers are listed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.lost_leaders import LISTED_MS, DelayedMetadata
from ottla.controller.decisions.brokers import controlled_shutdown_records, fence_records, unfence_records
from ottla.controller.metadata.image import MetadataDelta
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.server.clock import TimerWheel
from tests.controller.harness import DecisionHarness
from tests.manual_clock import ManualClock


@pytest.mark.parametrize(("age_ms", "waits"), [(0, False), (20, False), (400, True), (60_000, True)])
def test_a_client_that_is_starting_does_not_wait_and_one_in_service_does(age_ms: int, waits: bool) -> None:
    """If clients whose leader was killed in their first second had to wait, they looked for the new one a second late. A client
    of 0.4 s is in service.
    """
    clock: Any = SimpleNamespace(mono_ns=lambda: 10**12)
    connection: Any = SimpleNamespace(opened_ns=10**12 - age_ms * 1_000_000)
    wheel: Any = None
    assert DelayedMetadata(clock, wheel).is_old(connection) is waits


class Listing:
    """A broker that reads the decisions of the controller of three brokers."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = DecisionHarness()
        self.held = DelayedMetadata(self.clock, TimerWheel(self.clock))

    def read(self, records: list[MetadataRecord]) -> list[int]:
        delta = MetadataDelta(self.cluster.image)
        for record in records:
            delta.replay(record)
        self.cluster.replay(records)
        self.held.on_metadata_update(delta, self.cluster.image)
        return self.held.just_fenced()


def test_a_broker_that_died_is_listed_for_a_while_or_until_it_is_back() -> None:
    listing = Listing()
    state = listing.cluster.state
    assert listing.read(fence_records(state, 1)) == [1]
    assert listing.read(fence_records(state, 2)) == [1, 2]
    assert listing.read(unfence_records(state, 1, listing.cluster.epoch(1))) == [2]
    listing.clock.advance(LISTED_MS)
    assert listing.held.just_fenced() == []


def test_a_broker_that_stopped_is_not_listed_whether_or_not_it_led() -> None:
    listing = Listing()
    state = listing.cluster.state
    assert listing.read(fence_records(state, 3, stops=True)) == []
    listing.cluster.topic("orders", "1 2")
    assert listing.read(controlled_shutdown_records(state, 1, listing.cluster.epoch(1))) == []
    assert listing.read(fence_records(state, 1, stops=True)) == []
