"""The replicas that a partition lacks: one rule for metrics, readiness, health, console and tools.

A reassignment adds its new replicas to the partition at once, long before they have the records. Since KIP-455 they do not count
towards the replication factor until the reassignment is completed, so that a planned move is no alarm (KAFKA-8834).

    replicas     adding   in sync     missing
    1, 2, 3      -        1, 3        2
    1, 2         2        1           none: broker 2 is still copying
    1, 2, 3, 4   3, 4     1           2
    1, 2, 3      3        1, 3        none: two are in sync, and the replication factor is two

min.insync.replicas is another matter: what it asks for is counted in the ISR, added replicas included, because each member of
the ISR has what is acknowledged with acks=all.

Readers of responses to clients get the adding replicas by ListPartitionReassignments, which Metadata does not have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def original_replicas(replicas: Iterable[int], adding: Collection[int]) -> tuple[int, ...]:
    """Return the replicas without those that a reassignment is adding.

    Their number is the replication factor, as in OngoingReassignmentState of Kafka's Partition.scala, and in its TopicCommand.
    """
    return tuple(replica for replica in replicas if replica not in adding)


def missing_replicas(replicas: Iterable[int], adding: Collection[int], isr: Collection[int]) -> tuple[int, ...]:
    """Return the original replicas out of the ISR if the partition is under-replicated, else none.

    As in Kafka the members of the ISR are counted: an added replica that has caught up makes up for an original one that
    has not.
    """
    original = original_replicas(replicas, adding)
    if len(isr) >= len(original):
        return ()
    return tuple(replica for replica in original if replica not in isr)
