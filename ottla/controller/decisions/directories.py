"""AssignReplicasToDirs (KIP-858): a broker reports in which of its log directories its replicas are.

A replica whose directory is lost has an empty log in another directory. As a follower it copies the leader's log; as the leader
it would make all other replicas truncate their logs to nothing. So such a replica keeps its lost directory in the metadata,
and no election chooses it, as long as the partition has no leader and another replica may come back. If the directory itself
comes back, the replica may lead as before (see `_is_empty_beside_others`).
"""

from __future__ import annotations

from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN
from ottla.controller.decisions.outcome import Decision, Outcome
from ottla.controller.decisions.partition_change import Election
from ottla.controller.metadata.topics import NO_LEADER, PartitionRegistration, TopicImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_DIRECTORIES
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryDataResponse,
    TopicDataResponse,
)
from ottla.protocol.messages.shared_structs import PartitionErrorCode


def assign_replicas_to_directories(
    state: ControlState, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    if state.image.features.metadata_version < MV_DIRECTORIES:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Directory assignment is not supported yet.")
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[MetadataRecord] = []
    response = AssignReplicasToDirsResponse()
    decided = 0
    for directory in request.directories:
        directory_answer = DirectoryDataResponse(id=directory.id)
        response.directories.append(directory_answer)
        for asked in directory.topics:
            topic_answer = TopicDataResponse(topic_id=asked.topic_id)
            directory_answer.topics.append(topic_answer)
            for each in asked.partitions:
                if decided == PARTITIONS_PER_TURN:
                    yield records
                    state.check_broker_epoch(request.broker_id, request.broker_epoch)
                    records, decided = [], 0
                result = PartitionErrorCode(partition_index=each.partition_index)
                topic_answer.partitions.append(result)
                decided += 1
                try:
                    topic = state.image.topics.by_id(asked.topic_id)
                    partition = _replica(topic, each.partition_index, request.broker_id)
                    assert topic is not None
                    records += _assign(
                        state, topic, each.partition_index, partition, request.broker_id, directory.id,
                        online=state.directory_online(request.broker_id, directory.id),
                    )  # fmt: skip
                except KafkaError as error:
                    result.error_code = error.code
    return Outcome(records, response)


def _replica(topic: TopicImage | None, index: int, broker_id: int) -> PartitionRegistration:
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return partition


def _assign(
    state: ControlState,
    topic: TopicImage,
    index: int,
    partition: PartitionRegistration,
    broker_id: int,
    directory: bytes,
    *,
    online: bool,
) -> list[MetadataRecord]:
    """Assign a replica's directory. If that directory is offline, the same record removes the replica from ISR and ELR."""
    if online and _is_empty_beside_others(state, topic, partition, broker_id):
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "The replica's log directory is lost, and there is no leader to copy the partition from.",
        )
    is_active = state.image.cluster.is_active
    gone = NO_LEADER if online else broker_id
    change = state.change(
        topic,
        index,
        partition,
        is_active=lambda broker: broker != gone and is_active(broker),
        election=Election.ONLINE if online else None,
    )
    if online:
        # The replica may move away from an offline directory: its eligibility follows from the new directory.
        change.may_lead = lambda broker: (
            is_active(broker) and (broker == broker_id or state.directory_online(broker, partition.directory(broker)))
        )
    else:
        change.isr = tuple(broker for broker in partition.isr if broker != broker_id)
        change.unclean_shutdown = frozenset((broker_id,))
    change.directories[broker_id] = directory
    record = change.record()
    return [] if record is None else [record]


def _is_empty_beside_others(
    state: ControlState, topic: TopicImage, partition: PartitionRegistration, broker_id: int
) -> bool:
    """Return True if the partition has no leader, this replica lost its directory, and another registered broker has a replica.

    If it were elected as last known leader (KIP-966) or by an operator's unclean election, the other replicas would lose their logs.
    It may lead if unclean elections are enabled, or once all other brokers are unregistered, so that no copy can come back.
    """
    return (
        not partition.has_leader
        and not state.directory_online(broker_id, partition.directory(broker_id))
        and any(other != broker_id and other in state.image.cluster.brokers for other in partition.replicas)
        and not state.unclean_election(topic.name)
    )
