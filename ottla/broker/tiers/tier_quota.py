"""The quotas of remote storage: how many bytes a broker may copy there, and read from there, in a second (KIP-956).

Each is a token bucket of all windows' worth, that goes into debt by a larger request, as a segment may be: later requests wait
until the debt is paid. The limit is read each time, because it is dynamic; a new one begins without debt, so that a limit that
was too low by mistake ends when it is corrected.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.broker.configs import BrokerConfigs
from ottla.server.clock import Clock
from ottla.server.metrics import GAUGE, Family, Sample
from ottla.server.quotas.rate import Bucket

#: Kafka's default: there is no quota.
UNLIMITED = (1 << 63) - 1


class QuotaProperties(NamedTuple):
    """The direction of a quota, and the names of its properties."""

    direction: str
    limit: str
    window_num: str
    window_seconds: str


COPIES = QuotaProperties(
    "copy",
    "remote.log.manager.copy.max.bytes.per.second",
    "remote.log.manager.copy.quota.window.num",
    "remote.log.manager.copy.quota.window.size.seconds",
)
FETCHES = QuotaProperties(
    "fetch",
    "remote.log.manager.fetch.max.bytes.per.second",
    "remote.log.manager.fetch.quota.window.num",
    "remote.log.manager.fetch.quota.window.size.seconds",
)


class TierQuota:
    """The quota of one direction, and how long it has delayed copies or reads."""

    def __init__(self, configs: BrokerConfigs, clock: Clock, properties: QuotaProperties) -> None:
        self._configs, self._clock, self.properties = configs, clock, properties
        self._limit = UNLIMITED
        self._bucket = Bucket(0)
        self._throttles = self._throttled_ms = self._throttle_ms_max = 0

    def wait_ms(self) -> int:
        """Return the time until more bytes may be taken, 0 if they may be taken now."""
        limit = self._configs[self.properties.limit]
        if limit != self._limit:
            windows = self._configs[self.properties.window_num] * self._configs[self.properties.window_seconds]
            self._limit, self._bucket = limit, Bucket(windows * 1_000)
        return 0 if limit == UNLIMITED else self._bucket.wait_ms(self._clock.mono_ms())

    def take(self, size: int) -> None:
        """Count this many bytes, which may be more than are left."""
        if self._limit != UNLIMITED:
            self._bucket.take(size, self._limit, self._clock.mono_ms())

    def throttled(self, wait_ms: int) -> None:
        """Count that something was held back, for as long as `wait_ms` said."""
        self._throttles += 1
        self._throttled_ms += wait_ms
        self._throttle_ms_max = max(self._throttle_ms_max, wait_ms)

    def metrics(self) -> Iterator[Family]:
        """Yield Kafka's two metrics of the throttle time."""
        name = f"kafka_server_remotelogmanager_remote_{self.properties.direction}_throttle_time"
        what = f"Milliseconds by which the {self.properties.direction} quota of remote storage has delayed something"
        average = self._throttled_ms / max(1, self._throttles)
        yield Family(f"{name}_avg", GAUGE, f"{what}, on average since the start", [Sample({}, average)])
        yield Family(f"{name}_max", GAUGE, f"{what}, at most since the start", [Sample({}, self._throttle_ms_max)])
