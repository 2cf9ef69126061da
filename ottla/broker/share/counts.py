"""The counters of all share partitions of a broker together, since the broker started."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import field

from ottla.broker.coordinator.shard import LoadTimes
from ottla.broker.share.share_partition import Acknowledgement
from ottla.protocol.slotted import mutable
from ottla.server.clock import Clock
from ottla.server.metrics import Histogram


@mutable
class ShareCounts:
    """Counts of share groups. `acknowledged`: records by acknowledge type, renewed locks among them; dead letters by group."""

    acknowledged: Counter[int] = field(default_factory=Counter)
    #: Committed dead letters, the batches that were to be produced, and those that have failed for good.
    dead_letters: Counter[str] = field(default_factory=Counter)
    dead_letter_requests: Counter[str] = field(default_factory=Counter)
    dead_letter_failures: Counter[str] = field(default_factory=Counter)
    load_times: LoadTimes = field(default_factory=LoadTimes)
    #: For each group two histograms of its ShareFetches: the percentage of a fetch's partitions of which it acquired records,
    #: and the time until then.
    fetch_ratios: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    acquire_times_ms: defaultdict[str, Histogram] = field(default_factory=lambda: defaultdict(Histogram))

    def fetch_begun(self, group_id: str, clock: Clock) -> Callable[[int], None]:
        """Return the function to call with the percentage when the fetch is answered."""
        began_ms = clock.mono_ms()

        def answered(percentage: int) -> None:
            self.fetch_ratios[group_id].add(percentage)
            self.acquire_times_ms[group_id].add(clock.mono_ms() - began_ms)

        return answered

    def forget(self, group_id: str) -> None:
        """Drop the histograms of a group without members: there is one for each group id that has ever fetched."""
        self.fetch_ratios.pop(group_id, None)
        self.acquire_times_ms.pop(group_id, None)

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                self.acknowledged.update(types)
