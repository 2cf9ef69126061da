"""A partition that this broker leads, as it was when something was decided about it.

Work that waits for a store or for another process must not use what it decided before: the partition may have another leader since then, or
this one again with another log.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.broker.replication.partition import Partition
from ottla.storage.log.log import Log


class LedLog(NamedTuple):
    """The log of a led partition, and the epoch of its leader."""

    partition: Partition
    log: Log
    leader_epoch: int

    @property
    def still_holds(self) -> bool:
        """Return whether this broker still leads the partition, with the same log and in the same epoch."""
        return self.partition.leader_log is self.log and self.partition.leader_epoch == self.leader_epoch


def led_log(partition: Partition) -> LedLog | None:
    """Return the led log of a partition, None if this broker does not lead it."""
    own = partition.leader_log
    return None if own is None else LedLog(partition, own, partition.leader_epoch)
