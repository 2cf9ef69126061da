"""How groups of one kind are described: those that are not readable, or not of the kind, have an error."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.state.modern_group import AnyModernGroup
from ottla.protocol.errors import KafkaError

G = TypeVar("G", bound=AnyModernGroup)
T = TypeVar("T")


def describe(
    shard: GroupMetadataManager,
    kind: type[G],
    group_ids: Sequence[str],
    described: Callable[[GroupMetadataManager, G], T],
    failed: Callable[[int, str | None, str], T],
) -> list[T]:
    """The groups' descriptions; `failed` makes one of error code, message and group id."""
    found = []
    for group_id in group_ids:
        try:
            shard.check_readable(group_id)
            found.append(described(shard, shard.group(kind, group_id)))
        except KafkaError as error:
            found.append(failed(error.code, error.message, group_id))
    return found
