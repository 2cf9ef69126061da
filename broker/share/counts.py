"""What the share partitions of a broker have counted since the broker started, all together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.broker.coordinator.context import LoadTimes
from ottla.broker.share.share_partition import Acknowledgement


@dataclass(slots=True)
class ShareCounts:
    """`acknowledged`: records by acknowledge type, renewed locks among them; dead letters by group."""

    acknowledged: Counter[int] = field(default_factory=Counter)
    #: Committed dead letters, the batches that were to be produced, and those that have failed for good.
    dead_letters: Counter[str] = field(default_factory=Counter)
    dead_letter_requests: Counter[str] = field(default_factory=Counter)
    dead_letter_failures: Counter[str] = field(default_factory=Counter)
    load_times: LoadTimes = field(default_factory=LoadTimes)

    def acknowledge(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        for first, last, types in acknowledgements:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                self.acknowledged.update(types)
