"""DeleteGroups: groups of any kind end with their offsets, and a share group's states at share coordinators end before it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import offsets
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.groups.share import share_offsets
from ottla.broker.groups.state.group_records import group_metadata_record
from ottla.broker.share.persister import Persister, errors_of, outcomes_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.server.network.reply import Answer, gather, then

log = logging.getLogger(__name__)


class GroupDeletion:
    """A share group is deleted after its states, because it alone knows of them."""

    def __init__(self, groups: GroupCoordinatorService, persister: Persister) -> None:
        self._groups = groups
        self._persister = persister

    def delete(self, group_ids: Sequence[str]) -> Answer[list[DeletableGroupResult]]:
        def begun(found: list[share_offsets.Deleted]) -> Answer[list[DeletableGroupResult]]:
            calls = {
                (group_id, *partition): call
                for deleted in found
                for group_id in deleted.partitions
                for partition, call in deleted.calls(group_id, self._persister).items()
            }
            if not calls:
                return self.delete_stateless(group_ids)

            def ended(
                outcomes: Mapping[tuple[str, bytes, int], KafkaError | None],
            ) -> Answer[list[DeletableGroupResult]]:
                failed = {group_id: error for (group_id, _, _), error in errors_of(outcomes).items()}
                results = self.delete_stateless([group_id for group_id in group_ids if group_id not in failed])
                kept = [DeletableGroupResult(group_id, error.code) for group_id, error in failed.items()]
                return then(results, lambda results: [*results, *kept])

            return outcomes_of(calls).then(ended)

        return then(gather([self._begin(group_id) for group_id in group_ids], lambda found: found), begun)

    def _begin(self, group_id: str) -> Answer[share_offsets.Deleted]:
        """What is wrong is found again by the deletion itself."""
        return self._groups.runtime.write(
            self._groups.partition_for(group_id),
            share_offsets.begin_deletion,
            lambda error: share_offsets.Deleted(error=error),
            [group_id],
        )

    def delete_stateless(self, group_ids: Sequence[str]) -> Answer[list[DeletableGroupResult]]:
        """Delete groups that have no states at share coordinators, or none any more."""

        def ask(partition: int, part: list[str]) -> Answer[list[DeletableGroupResult]]:
            def on_error(error: KafkaError) -> list[DeletableGroupResult]:
                return [DeletableGroupResult(group_id=group_id, error_code=error.code) for group_id in part]

            return self._groups.runtime.write(partition, delete, on_error, part)

        return self._groups.by_partition(group_ids, ask)


def delete(shard: GroupMetadataManager, now_ms: int, group_ids: Sequence[str]) -> Outcome[list[DeletableGroupResult]]:
    """Write tombstones for the groups without members, and for their offsets: in as many batches as they need, a group's own last.

    The response is a list of results. All of it is one turn, because a group that gets a member in between keeps its offsets.

    A group with a record that could not be replayed is deleted in every state, because it serves no member.
    """
    records: list[CoordinatorRecord] = []
    results = []
    for group_id in group_ids:
        result = DeletableGroupResult(group_id=group_id)
        try:
            unreadable = shard.unreadable.get(group_id, {})
            group = shard.groups.get(group_id)
            if group is None and not unreadable:
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
            if group is not None and not unreadable:
                group.validate_delete()
            records.extend((key, None) for key in unreadable.values())
            records.extend(offsets.tombstones(shard, group_id))
            records.extend([group_metadata_record(group_id, None)] if group is None else group.tombstones())
        except KafkaError as error:
            result.error_code = error.code
        results.append(result)

    def deleted() -> Unasked:
        names = ", ".join(result.group_id for result in results if result.error_code == ErrorCode.NONE)
        log.info("The following groups were deleted: %s", names)
        return Outcome()

    return Outcome(records, results, then=deleted if records else None, atomic=False)
