"""Set algebra of a reassignment: the replicas to add and remove, its completion, and its cancellation.

While it is in progress, replicas = target + removing. It completes when every replica of the target is in the ISR; then the
removed ones leave replicas and ISR in one step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.controller.metadata.partitions import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError

Replicas = tuple[int, ...]


class Reassignment(NamedTuple):
    replicas: Replicas
    removing: Replicas
    adding: Replicas


def reassignment(current: Sequence[int], target: Sequence[int]) -> Reassignment:
    removing = tuple(sorted(set(current) - set(target)))
    adding = tuple(sorted(set(target) - set(current)))
    return Reassignment((*target, *removing), removing, adding)


def completed(
    removing: Replicas, adding: Replicas, replicas: Replicas, isr: Replicas
) -> tuple[Replicas, Replicas] | None:
    """Returns (replicas, ISR) after the last step if the ISR allows it, else None."""
    if not removing and not adding:
        return None
    new_isr = tuple(replica for replica in isr if replica not in removing)
    new_replicas = tuple(replica for replica in replicas if replica not in removing)
    if not new_isr or not new_replicas or not set(new_replicas) <= set(new_isr):
        return None
    return new_replicas, new_isr


class Revert(NamedTuple):
    replicas: Replicas
    isr: Replicas
    unclean: bool  # no replica of the old assignment is in sync: the topic must enable unclean elections


def revert(partition: PartitionRegistration) -> Revert:
    """Returns the assignment after a cancellation: without the added replicas, with those to be removed."""
    replicas = tuple(replica for replica in partition.replicas if replica not in partition.adding_replicas)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding_replicas)
    if isr:
        return Revert(replicas, isr, unclean=False)
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    return Revert(replicas, replicas[:1], unclean=True)
