"""Bounds that Kafka does not have, on the state that clients can create in a broker. Each bound counts its rejections.

The defaults are far above normal use, so that only a client in a loop, or a malicious one, reaches them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.kept import shown
from ottla.server.metrics import COUNTER, Family, Sample

log = logging.getLogger(__name__)

GROUPS = "ottla.groups.per.partition.max"
TRANSACTIONAL_IDS = "ottla.transactional.ids.per.partition.max"
PRODUCER_IDS = "ottla.producer.ids.per.partition.max"


class Bound:
    """One bound. `name` is its property."""

    __slots__ = ("limit", "name", "refused")

    def __init__(self, name: str, limit: int) -> None:
        self.name = name
        self.limit = limit
        self.refused = 0

    def check(self, count: int, what: str) -> None:
        """Checks whether one more than `count` is allowed, which is `what`. Raises KafkaError if the bound is reached."""
        if count < self.limit:
            return
        self.refused += 1
        if self.refused.bit_count() == 1:  # the first rejection, and each time that their number has doubled
            log.warning(
                "There are %d already, and %d more were refused, %s the last: %s=%d",
                count,
                self.refused,
                shown(what),
                self.name,
                self.limit,
            )
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"there are {count} already ({self.name})")


def bound_metrics(bounds: Iterable[Bound]) -> Iterator[Family]:
    samples = [Sample({"property": bound.name}, bound.refused) for bound in bounds]
    yield Family("ottla_bound_refusals", COUNTER, "What was refused because a bound was reached", samples)
