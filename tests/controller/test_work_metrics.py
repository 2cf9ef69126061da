"""The metrics of a controller about its own work: applied records, durations of decisions, contact with brokers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ottla.controller.decisions.outcome import Outcome
from ottla.controller.metrics import CONTROLLER, QUEUE, ControllerWorkMetrics
from ottla.controller.runtime import MS_PER_UNIT
from ottla.protocol.errors import ErrorCode, KafkaError
from tests.controller.test_runtime import Quorum, active, topic


class Scraped:
    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self.metadata = SimpleNamespace(last_append_time_ms=quorum.clock.wall_ms())
        self._source = ControllerWorkMetrics(quorum.controller, self.metadata)

    def __call__(self, name: str, prefix: str = CONTROLLER, **labels: str) -> float:
        samples = [
            sample for family in self._source() if family.name == f"{prefix}_{name}" for sample in family.samples
        ]
        (found,) = [sample.value for sample in samples if sample.labels == labels]
        return found


def test_the_active_controller_has_applied_what_is_not_committed_yet() -> None:
    quorum = active()
    scraped = Scraped(quorum)
    committed = quorum.loader.last_offset
    assert scraped("lastappliedrecordoffset") == scraped("lastcommittedrecordoffset") == committed
    quorum.clock.now_ms += 5_000  # without the timers, which append records, too
    quorum.write(topic("a"))
    appended_ms = quorum.clock.wall_ms()
    quorum.clock.now_ms += 20
    assert (scraped("lastappliedrecordoffset"), scraped("lastcommittedrecordoffset")) == (committed + 1, committed)
    assert (scraped("lastappliedrecordtimestamp"), scraped("lastappliedrecordlagms")) == (appended_ms, 20)
    quorum.controller.leader_changed(2, 9)
    assert scraped("lastappliedrecordoffset") == committed, "a standby has the committed records only"
    assert scraped("lastappliedrecordtimestamp") == scraped.metadata.last_append_time_ms
    assert scraped("newactivecontrollerscount") == 2


def test_decisions_are_counted_and_timed_also_those_that_are_refused() -> None:
    quorum = active()
    scraped = Scraped(quorum)
    started = scraped("eventqueueoperationsstartedcount")

    def slow(state: object) -> Outcome[str]:
        quorum.clock.now_ms += 12
        raise KafkaError(ErrorCode.INVALID_REQUEST)

    quorum.write(topic("a"))
    with pytest.raises(KafkaError):
        quorum.controller.write(slow)
    assert scraped("eventqueueoperationsstartedcount") == started + 2
    assert scraped("eventqueueprocessingtimems_count", QUEUE) == started + 2
    assert scraped("eventqueueprocessingtimems_sum", QUEUE) == pytest.approx(12, abs=MS_PER_UNIT)
    assert 8 < scraped("eventqueueprocessingtimems", QUEUE, quantile="0.999") < 17
    assert scraped("eventqueuetimems_count", QUEUE) == started + 2
    assert scraped("eventqueuetimems", QUEUE, quantile="0.99") == 0
    for name in ("timedoutbrokerheartbeatcount", "eventqueueoperationstimedoutcount"):
        assert scraped(name) == 0


def test_the_time_since_a_brokers_last_heartbeat_ends_with_its_session_and_with_the_term() -> None:
    quorum = active()
    scraped = Scraped(quorum)
    heartbeats, name = quorum.controller.heartbeats, "timesincelastheartbeatreceivedms"
    heartbeats.register(1, False, quorum.clock.mono_ms())
    quorum.clock.now_ms += 700
    assert scraped(name, broker="1") == 700
    heartbeats.touch(1, False, 5, quorum.clock.mono_ms())
    assert scraped(name, broker="1") == 0
    quorum.clock.now_ms += 1_000_000
    assert scraped(name, broker="1") == quorum.controller.settings.broker_session_timeout_ms
    quorum.controller.leader_changed(-1, 9)
    with pytest.raises(ValueError, match="not enough values"):
        scraped(name, broker="1")
