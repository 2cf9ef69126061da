"""What a partition asks of others on its node: interfaces alone, so that those who implement them may import the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.broker.replication.partition import Partition


class WaitingForStarts(Protocol):
    """What waits for replicas' log starts (replication/waiting_deletes.py)."""

    def look(self) -> None: ...


class IsrProposals(Protocol):
    """The way to the controller (replication/alter_partition.py)."""

    def may_be_in_sync(self, replica_id: int, broker_epoch: int) -> bool: ...

    def submit(self, partition: Partition) -> None: ...

    def close(self) -> None: ...
