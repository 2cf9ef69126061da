"""What a node counts, and how it is asked for. Hot paths add to plain ints on their own objects; only a scrape looks at them.

A source is a function that reads such ints and gives families of samples. Names are those that Kafka's metrics get in
Prometheus, so that dashboards and alerts made for Kafka work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

log = logging.getLogger(__name__)

COUNTER, GAUGE = "counter", "gauge"
#: The quantiles that Kafka's histograms show.
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)


class Sample(NamedTuple):
    labels: Mapping[str, str]
    value: float


class Family(NamedTuple):
    """All samples of one name. A counter's name is given without `_total`, which the exposition adds."""

    name: str
    kind: str
    doc: str
    samples: list[Sample]


Source = Callable[[], Iterable[Family]]


def gauge(name: str, doc: str, value: float, **labels: str) -> Family:
    """A family of one sample."""
    return Family(name, GAUGE, doc, [Sample(labels, value)])


def counter(name: str, doc: str, value: float, **labels: str) -> Family:
    """A family of one sample."""
    return Family(name, COUNTER, doc, [Sample(labels, value)])


class Registry:
    """All sources of a node."""

    def __init__(self) -> None:
        self._sources: list[Source] = []

    def add(self, source: Source) -> None:
        self._sources.append(source)

    def families(self) -> Iterator[Family]:
        """What the sources give, one after the other; a name may come more than once. A source that fails is logged and left.

        Sources with many samples give them in portions, so that a scrape can let others run in between.
        """
        for source in list(self._sources):
            try:
                yield from source()
            except Exception:
                log.exception("A source of metrics failed")

    def collect(self) -> list[Family]:
        """One family per name, in the order the sources were added; a source that fails is left out and logged."""
        families: dict[str, Family] = {}
        for source in self._sources:
            try:
                found = list(source())
            except Exception:
                log.exception("A source of metrics failed")
                continue
            for family in found:
                known = families.setdefault(family.name, Family(family.name, family.kind, family.doc, []))
                assert known.kind == family.kind, f"{family.name} is a {known.kind} and a {family.kind}"
                known.samples.extend(family.samples)
        return list(families.values())


def quantile_of_buckets(buckets: list[int], quantile: float) -> float:
    """The value below which `quantile` of the counts lie, where bucket i counts values of i bits; linear inside a bucket."""
    total = sum(buckets)
    if not total:
        return 0.0
    wanted, seen = quantile * total, 0
    for bits, count in enumerate(buckets):
        if count and seen + count >= wanted:
            low, high = (1 << bits - 1 if bits else 0), 1 << bits
            return low + (high - low) * (wanted - seen) / count
        seen += count
    return float(1 << len(buckets) - 1)
