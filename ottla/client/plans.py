"""Plans of moves: which replicas a plan moves, what it may not name, and its end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.balance import plan_balance
from ottla.client.cluster import ClusterClient
from ottla.client.cluster_error import ClusterError, code_of
from ottla.client.errors import Kind
from ottla.client.leaders import TopicPartition
from ottla.client.move_file import PlannedMove, moves_between
from ottla.client.moving import partition_sizes, racks_of_brokers, replica_sizes, replicas_of_all, take_throttle_off
from ottla.client.reassignments import alter_reassignments, list_reassignments
from ottla.client.throttles import throttled_topics

#: A slower one never ends: the brokers take whole fetches of up to a megabyte.
THROTTLE_MIN = 1_000


def read_brokers(option: str, text: str) -> list[int]:
    """Return the brokers of a list such as 1,2,3."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and part.isascii() and len(part) < 11 for part in parts):
        raise ClusterError(f"{option} {text!r} is no list of brokers", f"for example {option} 1,2,3", Kind.WRONG)
    return sorted({int(part) for part in parts})


async def plan_moves(
    cluster: ClusterClient, places: Iterable[TopicPartition] | None, brokers: Iterable[int] | None
) -> list[PlannedMove]:
    """Plan to have partitions, all for None, on some brokers only, evenly and over their racks; None: on all that take part.

    Raises:
        ClusterError: a broker takes no part, or a partition has more replicas than there would be brokers.
    """
    racks = await racks_of_brokers(cluster)
    wanted = list(racks if brokers is None else brokers)
    before = await replicas_of_all(cluster)
    moved = list(before if places is None else places)
    _check_present(moved, before, wanted, racks)
    sizes = partition_sizes(await replica_sizes(cluster, racks))
    balance = plan_balance({place: before[place] for place in moved}, sizes, {node: racks[node] for node in wanted})
    refuse_stuck(balance.stuck)
    return moves_between(before, balance.replicas, sizes)


async def moves_to(cluster: ClusterClient, target: Mapping[TopicPartition, list[int]]) -> list[PlannedMove]:
    """Return the moves of a plan, from the replicas as they are now.

    Raises:
        ClusterError: it names a partition or a broker that is not there.
    """
    before = await replicas_of_all(cluster)
    racks = await racks_of_brokers(cluster)
    _check_present(target, before, {node for nodes in target.values() for node in nodes}, racks)
    nodes = {node for place in target for node in before[place]}
    return moves_between(before, target, partition_sizes(await replica_sizes(cluster, nodes, target)))


def _check_present(
    places: Iterable[TopicPartition],
    known: Mapping[TopicPartition, object],
    brokers: Iterable[int],
    racks: Mapping[int, object],
) -> None:
    if unknown := sorted(set(places) - known.keys()):
        name, index = unknown[0]
        raise ClusterError(f"there is no partition {name}-{index}", kind=Kind.NO_SUCH_PARTITION)
    if gone := sorted(set(brokers) - racks.keys()):
        raise ClusterError(f"broker {gone[0]} takes no part", kind=Kind.NO_SUCH_BROKER)


async def cancel_moves(cluster: ClusterClient, places: Iterable[TopicPartition]) -> None:
    """Cancel the moves of these partitions, and take the throttles off when none is left.

    Raises:
        ClusterError: a move cannot be cancelled, or has ended by itself.
    """
    results = await alter_reassignments(cluster, dict.fromkeys(places))
    for (name, index), (code, message) in results.items():
        if code:
            raise ClusterError(f"{name}-{index}: {message or code_of(code).message} ({code_of(code).name})")
    if not await list_reassignments(cluster):
        await take_throttle_off(cluster, await throttled_topics(cluster))


def refuse_stuck(stuck: list[TopicPartition]) -> None:
    """Reject a plan with partitions for which there are too few brokers."""
    if stuck:
        name, index = stuck[0]
        raise ClusterError(
            f"{len(stuck)} partition(s), such as {name}-{index}, have more replicas than there would be brokers",
            kind=Kind.TOO_FEW_BROKERS,
        )


def check_throttle(throttle: int | None) -> None:
    """Reject a rate at which nothing would ever move."""
    if throttle is not None and not THROTTLE_MIN <= throttle < 2**63:
        raise ClusterError(f"a throttle of {throttle} bytes a second is not from {THROTTLE_MIN} on", None, Kind.WRONG)
