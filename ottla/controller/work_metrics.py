"""The work of a controller under the names of Kafka's QuorumControllerMetrics: what it has applied, how long decisions take.

Kafka's controller has a queue of events, and an event that has waited in it for too long times out. Here a decision begins
in the turn of the loop in which its request is read: nothing waits, nothing times out, and those metrics are 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ottla.controller.metrics import CONTROLLER
from ottla.controller.node import MetadataNode
from ottla.controller.operations import MS_PER_UNIT
from ottla.controller.runtime import Controller
from ottla.server.metrics import GAUGE, Family, Histogram, Sample, gauge, histograms

QUEUE = "kafka_controller_controllereventmanager"


@dataclass(slots=True)
class ControllerWorkMetrics:
    """A source of metrics."""

    controller: Controller
    metadata: MetadataNode

    def __call__(self) -> Iterator[Family]:
        controller, operations = self.controller, self.controller.operations
        applied_ms = self._applied_ms()
        gauges = (
            ("lastappliedrecordoffset", "Offset of the newest record applied here", controller.last_applied_offset),
            ("lastcommittedrecordoffset", "Offset of the newest committed record", controller.loader.last_offset),
            ("lastappliedrecordtimestamp", "Time of the append of the newest record applied here", applied_ms),
            (
                "lastappliedrecordlagms",
                "Milliseconds since the newest record was appended",
                controller.clock.wall_ms() - applied_ms,
            ),
            ("newactivecontrollerscount", "Active controllers that this node has seen", controller.leaders),
            ("timedoutbrokerheartbeatcount", "Heartbeats that waited for too long: none", 0),
            ("eventqueueoperationsstartedcount", "Decisions begun", operations.started),
            ("eventqueueoperationstimedoutcount", "Decisions that waited for too long: none", 0),
        )
        for name, doc, value in gauges:
            yield gauge(f"{CONTROLLER}_{name}", doc, value)
        times: list[tuple[dict[str, str], Histogram]] = [({}, operations.times)]
        yield from histograms(f"{QUEUE}_eventqueuetimems", "Milliseconds that decisions waited: none", times, 0)
        doc = "Milliseconds that decisions took"
        yield from histograms(f"{QUEUE}_eventqueueprocessingtimems", doc, times, MS_PER_UNIT)
        yield self._since_contact()

    def _applied_ms(self) -> int:
        """Returns the time of the newest record of `image`: the append of an uncommitted one was this controller's own."""
        controller = self.controller
        if controller.last_applied_offset == controller.loader.last_offset:
            return self.metadata.last_append_time_ms
        clock = controller.clock
        return clock.wall_ms() - (clock.mono_ms() - controller.last_append_ms)

    def _since_contact(self) -> Family:
        """The active controller alone has sessions."""
        since: dict[int, int] = {}
        if self.controller.is_active:
            since = self.controller.heartbeats.since_contact_ms(self.controller.clock.mono_ms())
        samples = [Sample({"broker": str(broker_id)}, ms) for broker_id, ms in since.items()]
        doc = "Milliseconds since the broker's last heartbeat, at most a session's"
        return Family(f"{CONTROLLER}_timesincelastheartbeatreceivedms", GAUGE, doc, samples)
