"""DeleteGroups: a group of any kind is deleted with its offsets, and with its state at other coordinators.

The state elsewhere, which is that of share partitions at share coordinators, is deleted first, because only the group knows of
it. So a deletion is two decisions: the first records the deletion elsewhere, the second appends the tombstones. If the
coordinator moves in between, the client asks again, and the first decision finds what was left.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from ottla.broker.coordinator.outcome import CoordinatorRecord, Outcome, Unasked
from ottla.broker.groups import offsets
from ottla.broker.groups.group import group_metadata_record
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import GroupMetadataManager
from ottla.broker.share.share_state import Persister, SharePartitionKey, errors_of, outcomes_of
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult
from ottla.protocol.slotted import frozen
from ottla.server.network.context import Answer, gather, then
from ottla.server.story import UNNAMED, Asker, because

log = logging.getLogger(__name__)

#: The partitions whose states a group has at share coordinators.
States = frozenset[tuple[bytes, int]]


@frozen
class GroupDeletion:
    """Deletes groups of this coordinator."""

    groups: GroupCoordinatorService
    persister: Persister

    def delete(self, group_ids: Sequence[str], asker: Asker = UNNAMED) -> Answer[list[DeletableGroupResult]]:
        def begun(found: list[States]) -> Answer[list[DeletableGroupResult]]:
            calls = {
                (group_id, *partition): self.persister.delete(
                    SharePartitionKey(group_id, *partition),
                    self.groups.runtime.tenure(self.groups.partition_for(group_id)),
                )
                for group_id, states in zip(group_ids, found, strict=True)
                for partition in sorted(states)
            }
            if not calls:
                return self.end(group_ids, asker)

            def ended(
                outcomes: Mapping[tuple[str, bytes, int], KafkaError | None],
            ) -> Answer[list[DeletableGroupResult]]:
                failed = {group_id: error for (group_id, _, _), error in errors_of(outcomes).items()}
                others = [group_id for group_id in group_ids if group_id not in failed]
                kept = [DeletableGroupResult(group_id, error.code) for group_id, error in failed.items()]
                return then(self.end(others, asker), lambda results: [*results, *kept])

            return outcomes_of(calls).then(ended)

        return then(gather([self._begin(group_id) for group_id in group_ids], lambda found: found), begun)

    def _begin(self, group_id: str) -> Answer[States]:
        """Begin to delete the group. An error need not be kept, because the second decision finds it again."""
        self.groups.stories.begin(group_id, because("DeleteGroups"))
        return self.groups.runtime.write(
            self.groups.partition_for(group_id), begin, lambda error: frozenset(), group_id
        )

    def end(self, group_ids: Sequence[str], asker: Asker) -> Answer[list[DeletableGroupResult]]:
        """Delete groups that have no state at other coordinators, or none any more."""

        def failed(error: KafkaError, group_id: str) -> DeletableGroupResult:
            return DeletableGroupResult(group_id, error.code)

        def decide(shard: GroupMetadataManager, now_ms: int, part: list[str]) -> Outcome[list[DeletableGroupResult]]:
            shard.stories.begin(part[0], ("DeleteGroups", asker))
            return delete(shard, now_ms, part)

        return self.groups.each(self.groups.runtime.write, decide, group_ids, failed)


def begin(shard: GroupMetadataManager, now_ms: int, group_id: str) -> Outcome[States]:
    """Begin the deletion of a group. If it cannot be deleted, the second decision has the error."""
    group = shard.groups.get(group_id)
    if group is None or group.members or group_id in shard.unreadable:
        return Outcome(response=frozenset())
    deletion = group.deletion_begun(shard.cluster.topics())
    return Outcome(list(deletion.records), deletion.states)


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
