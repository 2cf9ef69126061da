"""Share groups as handlers see them: decisions of the group coordinator, and the persister's part between two of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from ottla.broker.coordinator.outcome import Outcome, worded
from ottla.broker.groups.group_coordinator_service import GroupCoordinatorService
from ottla.broker.groups.group_metadata_manager import Client, GroupMetadataManager
from ottla.broker.groups.modern.assignment import Assignment
from ottla.broker.groups.share import share_heartbeat, share_offsets
from ottla.broker.share.share_state import (
    UNINITIALIZED_START_OFFSET,
    UNKNOWN_COUNT,
    Holds,
    Persister,
    SharePartitionKey,
    StateSummary,
    errors_of,
    outcomes_of,
)
from ottla.controller.metadata.topics import TopicsImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from ottla.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from ottla.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from ottla.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from ottla.protocol.slotted import frozen
from ottla.server.network.context import Answer, Reply, then
from ottla.server.story import because

log = logging.getLogger(__name__)

#: The cause of the decision after the share coordinators have answered.
PERSISTED = because("share coordinators")

R = TypeVar("R")
T = TypeVar("T")

HEARTBEAT_ERROR = worded(ShareGroupHeartbeatResponse)


@frozen
class ShareGroupCoordinator:
    """Share groups of this coordinator: heartbeats, descriptions and offsets."""

    groups: GroupCoordinatorService
    persister: Persister
    #: Returns the newest image of topics.
    topics: Callable[[], TopicsImage]
    #: Asks the leaders for the ends of partitions, by name and index.
    end_offsets: Callable[[Iterable[tuple[str, int]]], Reply[dict[tuple[str, int], int | KafkaError]]]

    # ---- members

    def heartbeat(self, request: ShareGroupHeartbeatRequest, client: Client) -> Answer[ShareGroupHeartbeatResponse]:
        cause = "ShareGroupHeartbeat", client
        return self.groups.write(
            request.group_id, cause, share_heartbeat.heartbeat, HEARTBEAT_ERROR, request, client, self._initialize
        )

    def _tenure(self, group_id: str) -> Holds:
        return self.groups.runtime.tenure(self.groups.partition_for(group_id))

    def _initialize(self, group_id: str, state_epoch: int, partitions: Assignment) -> None:
        """Members do not wait for this: they get the partitions with a later heartbeat."""
        holds = self._tenure(group_id)
        calls = {
            (topic_id, partition): self.persister.initialize(
                SharePartitionKey(group_id, topic_id, partition), state_epoch, UNINITIALIZED_START_OFFSET, holds
            )
            for topic_id, its_partitions in partitions.items()
            for partition in its_partitions
        }
        outcomes_of(calls).then(partial(self._initialized, group_id, state_epoch))

    def _initialized(
        self, group_id: str, state_epoch: int, outcomes: Mapping[share_offsets.Partition, KafkaError | None]
    ) -> None:
        failed = errors_of(outcomes)
        if failed:
            log.warning("[GroupId %s] %d share partitions could not be initialized", group_id, len(failed))
        self.groups.stories.begin(group_id, PERSISTED)
        # A coordinator that is deposed meanwhile leaves them to the next one, which initializes them again.
        with suppress(KafkaError):
            self.groups.runtime.write_unasked(
                self.groups.partition_for(group_id),
                share_offsets.initialization_ended,
                group_id,
                state_epoch,
                outcomes.keys() - failed.keys(),
                failed.keys(),
            )

    # ---- offsets

    def alter_offsets(self, request: AlterShareGroupOffsetsRequest) -> Answer[AlterShareGroupOffsetsResponse]:
        on_error = worded(AlterShareGroupOffsetsResponse)
        if not request.group_id:
            return on_error(KafkaError(ErrorCode.INVALID_GROUP_ID))

        def begun(result: share_offsets.Altered) -> Answer[AlterShareGroupOffsetsResponse]:
            holds = self._tenure(request.group_id)
            calls = {
                partition: self.persister.initialize(
                    SharePartitionKey(request.group_id, *partition), result.state_epoch, start_offset, holds
                )
                for partition, start_offset in result.start_offsets.items()
            }
            if not calls:
                return result.response
            return self._write_outcomes(request.group_id, calls, share_offsets.altered, on_error, result)

        first = self.groups.write(
            request.group_id,
            because("AlterShareGroupOffsets"),
            share_offsets.alter,
            lambda error: share_offsets.Altered(on_error(error)),
            request,
        )
        return then(first, begun)

    def delete_offsets(self, request: DeleteShareGroupOffsetsRequest) -> Answer[DeleteShareGroupOffsetsResponse]:
        on_error = worded(DeleteShareGroupOffsetsResponse)
        if not request.group_id:
            return on_error(KafkaError(ErrorCode.INVALID_GROUP_ID))
        group_id = request.group_id

        def begun(result: share_offsets.Deleted) -> Answer[DeleteShareGroupOffsetsResponse]:
            if result.error is not None:
                return on_error(result.error)
            holds = self._tenure(group_id)
            calls = {
                partition: self.persister.delete(SharePartitionKey(group_id, *partition), holds)
                for partition in sorted(result.partitions)
            }
            if not calls:
                return DeleteShareGroupOffsetsResponse(responses=list(result.rejected))
            return self._write_outcomes(group_id, calls, share_offsets.deleted, on_error, result)

        names = list(dict.fromkeys(topic.topic_name for topic in request.topics))
        first = self.groups.write(
            group_id,
            because("DeleteShareGroupOffsets"),
            share_offsets.delete,
            lambda error: share_offsets.Deleted(error=error),
            group_id,
            names,
        )
        return then(first, begun)

    def _write_outcomes(
        self,
        group_id: str,
        calls: Mapping[share_offsets.Partition, Reply[None]],
        decide: Callable[[GroupMetadataManager, int, str, T, Mapping[share_offsets.Partition, KafkaError]], Outcome[R]],
        on_error: Callable[[KafkaError], R],
        first: T,
    ) -> Reply[R]:
        """Make the second decision, when the persister has ended or has failed; `first` is the response of the first one."""
        return outcomes_of(calls).then(
            lambda outcomes: self.groups.write(
                group_id, PERSISTED, decide, on_error, group_id, first, errors_of(outcomes)
            )
        )

    # ---- describe

    def describe_offsets(
        self, group: DescribeShareGroupOffsetsRequestGroup
    ) -> Answer[DescribeShareGroupOffsetsResponseGroup]:
        """Return the start offsets of the topics asked for; if there are none, of all partitions that have state, which the group's coordinator knows.

        Offsets of named partitions are the share coordinator's alone: any broker describes them, also while the group has no coordinator.
        """
        if group.topics is not None:
            return self._summaries(group.group_id, [(topic.topic_name, topic.partitions) for topic in group.topics])

        on_error = worded(partial(DescribeShareGroupOffsetsResponseGroup, group_id=group.group_id))
        first = self.groups.runtime.read(
            self.groups.partition_for(group.group_id),
            share_offsets.initialized,
            lambda error: share_offsets.Initialized(error=error),
            group.group_id,
        )

        def found(initialized: share_offsets.Initialized) -> Answer[DescribeShareGroupOffsetsResponseGroup]:
            if initialized.error is not None:
                return on_error(initialized.error)
            topics = self.topics()
            wanted = [
                (topic.name, sorted(partitions))
                for topic_id, partitions in initialized.partitions.items()
                if (topic := topics.by_id(topic_id)) is not None
            ]
            return self._summaries(group.group_id, wanted)

        return then(first, found)

    def _summaries(
        self, group_id: str, wanted: Sequence[tuple[str, Sequence[int]]]
    ) -> Answer[DescribeShareGroupOffsetsResponseGroup]:
        topics = self.topics()
        calls = {
            (name, partition): self.persister.read_summary(SharePartitionKey(group_id, topic_id, partition), 0)
            for name, partitions in wanted
            if (topic_id := topics.id_of(name)) is not None
            for partition in partitions
            if topics.partition(topic_id, partition) is not None
        }

        def described(
            summaries: Mapping[tuple[str, int], StateSummary | KafkaError],
            found: Mapping[tuple[str, int], int | KafkaError],
        ) -> DescribeShareGroupOffsetsResponseGroup:
            # The leaders were asked by name: a topic of that name may have been created again since.
            ends = {at: end for at, end in found.items() if self.topics().id_of(at[0]) == topics.id_of(at[0])}
            rows = [
                DescribeShareGroupOffsetsResponseTopic(
                    name,
                    topics.id_of(name) or bytes(16),
                    [_row(partition, summaries.get((name, partition)), ends.get((name, partition))) for partition in p],
                )
                for name, p in wanted
            ]
            return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, topics=rows)

        def summarized(
            summaries: Mapping[tuple[str, int], StateSummary | KafkaError],
        ) -> Reply[DescribeShareGroupOffsetsResponseGroup]:
            with_lag = [
                partition
                for partition, summary in summaries.items()
                if not isinstance(summary, KafkaError)
                and summary.start_offset != UNINITIALIZED_START_OFFSET
                and summary.delivery_complete_count != UNKNOWN_COUNT
            ]
            return self.end_offsets(with_lag).then(lambda ends: described(summaries, ends))

        return outcomes_of(calls).then(summarized)


def _row(
    partition: int, summary: StateSummary | KafkaError | None, end: int | KafkaError | None
) -> DescribeShareGroupOffsetsResponsePartition:
    """Return the row of a partition. As in Kafka, it has no offset if the persister has failed, and an error if the leader has."""
    if isinstance(end, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(partition, error_code=end.code, error_message=end.message)
    if summary is None or isinstance(summary, KafkaError):
        return DescribeShareGroupOffsetsResponsePartition(partition, UNINITIALIZED_START_OFFSET)
    lag = -1 if end is None else end - summary.start_offset - summary.delivery_complete_count
    return DescribeShareGroupOffsetsResponsePartition(partition, summary.start_offset, summary.leader_epoch, lag)
