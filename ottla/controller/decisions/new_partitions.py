"""New partitions: their replicas as the client or the controller has placed them, who is in sync and who leads."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.outcome import USER_RECORDS_MAX
from ottla.controller.metadata.topics import PartitionRegistration
from ottla.protocol.errors import ErrorCode, KafkaError


def check_manual_assignment(state: ControlState, replicas: Sequence[int], replication_factor: int | None) -> None:
    """Check that the brokers exist, that each is named once, and that their number is that of the other partitions."""
    if not replicas:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    seen = set()
    for broker_id in sorted(replicas):
        if broker_id not in state.image.cluster.brokers:
            raise bad_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
        if broker_id in seen:
            raise bad_assignment(f"The manual partition assignment includes the broker {broker_id} more than once.")
        seen.add(broker_id)
    if replication_factor is not None and len(replicas) != replication_factor:
        raise bad_assignment(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not"
            f" consistent with previous partitions, which have {replication_factor} replica(s)."
        )


def check_partitions_max(count: int) -> None:
    """Check the number of partitions before the placement, so that two billion partitions are not placed in vain."""
    if count > USER_RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")


def manual_partition(
    state: ControlState, new: NewPartitions, index: int, replicas: Sequence[int]
) -> PartitionRegistration:
    if not any(state.image.cluster.is_active(broker) for broker in replicas):
        raise bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
            " controlled shutdown."
        )
    return new.make(tuple(replicas))


class NewPartitions:
    """Makes the new partitions of one topic: all active replicas are in the ISR, because the log is empty; the first of them leads."""

    def __init__(self, state: ControlState) -> None:
        brokers = state.image.cluster.brokers
        self._inactive = frozenset(broker_id for broker_id, broker in brokers.items() if not broker.active)
        self._directories = {broker_id: state.default_directory(broker_id) for broker_id in brokers}

    def make(self, replicas: tuple[int, ...]) -> PartitionRegistration:
        isr = replicas
        if not self._inactive.isdisjoint(replicas):
            isr = tuple(broker for broker in replicas if broker not in self._inactive)
        if not isr:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in"
                " controlled shutdown.",
            )
        directories = tuple([self._directories[broker] for broker in replicas])
        return PartitionRegistration(replicas=replicas, isr=isr, leader=isr[0], directories=directories)


def bad_assignment(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
