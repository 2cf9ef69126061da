"""Life cycle of brokers: registration, fencing, unfencing, shutdown, failed directories, unregistration; and their producer ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ottla.controller.decisions.control_state import ControlState, is_directory_online
from ottla.controller.decisions.index import TopicIdPartition
from ottla.controller.decisions.leaving import PARTITIONS_PER_TURN, Leaving, electable, held_by, unclean_records
from ottla.controller.decisions.outcome import Outcome
from ottla.controller.metadata.cluster import (
    ENTER_CONTROLLED_SHUTDOWN,
    FENCE,
    UNFENCE,
    FeatureRange,
    features_of,
    ranges_of,
)
from ottla.controller.metadata.topics import MIGRATING_DIR, UNASSIGNED_DIR
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CONTROLLER_REGISTRATION, MV_CORDONED, MV_DIRECTORIES
from ottla.protocol.internal_topics.metadata_records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.messages.shared_structs import Feature
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.primitives import uuid_to_str
from ottla.protocol.releases import METADATA_VERSION, METADATA_VERSION_MIN

MV_UNREGISTER_CONTROLLER = 33

# Directory ids of which the first 8 bytes are zero and the rest is below this are reserved (KIP-858).
RESERVED_DIRECTORIES = 100


def register_broker(
    state: ControlState,
    request: BrokerRegistrationRequest,
    new_epoch: int,
    *,
    has_session: bool,
    leaving: Leaving | None = None,
) -> Outcome[int | None]:
    """Register a broker; the response is the broker epoch, the offset of the RegisterBrokerRecord, which therefore only grows.

    It is not the offset of the decision's first record. A broker that has read only the first record has not caught up: it
    would lead with old epochs, by the metadata from before its crash.

    It returns None if the former incarnation has more partitions than fit into this turn; call it again in the next turn, with
    the same `leaving`.

    `has_session`: a broker with that id has a session according to its heartbeats. A new incarnation without proof of a clean
    stop is removed from every ISR and ELR before it is unfenced (invariant 23).
    """
    _check_cluster_id(state, request.cluster_id)
    broker_id = request.broker_id
    existing = state.image.cluster.brokers.get(broker_id)
    same_incarnation = existing is not None and existing.incarnation_id == request.incarnation_id
    if existing is not None and has_session and not same_incarnation:
        raise KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "Another broker is registered with that broker id.")
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    metadata_version = state.image.features.metadata_version
    if metadata_version >= MV_DIRECTORIES:
        _check_directories(state, broker_id, request.log_dirs)
    if not request.listeners:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No listeners specified in request")
    record = RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=new_epoch,
        end_points=request.listeners,
        features=_checked_features(state.image.features.levels, request),
        rack=request.rack,
        log_dirs=sorted(request.log_dirs) if metadata_version >= MV_DIRECTORIES else [],
    )
    records: list[MetadataRecord] = []
    if same_incarnation:
        assert existing is not None
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
        record.broker_epoch = existing.epoch
    else:
        leaving = Leaving() if leaving is None else leaving
        records += _former_incarnation_records(state, request, leaving)
        if not leaving.is_done:
            return Outcome(records + _fence_unless_fenced(state, broker_id), None)
        record.broker_epoch = new_epoch + len(records)
    records.append(record)
    return Outcome(records, record.broker_epoch)


def _former_incarnation_records(
    state: ControlState, request: BrokerRegistrationRequest, leaving: Leaving
) -> list[MetadataRecord]:
    """Return the changes for the broker's former incarnation. A clean stop counts only if the broker sends the epoch it had then (KIP-966).

    Even then a replica whose log directory was removed from log.dirs is lost: the broker will create an empty log in another
    directory, which a clean election must not choose.
    """
    broker_id = request.broker_id
    former = state.image.cluster.brokers.get(broker_id)
    if former is None:
        leaving.start_over()
        return []
    if state.image.features.elr_enabled and former.epoch != request.previous_broker_epoch:
        return unclean_records(state, broker_id, leaving)
    registered = request.log_dirs if state.image.features.metadata_version >= MV_DIRECTORIES else ()
    # A replica whose directory the controller does not know may be in any missing directory.
    is_any_missing = bool(registered) and not set(former.directories) <= set(registered)

    def is_lost(directory: bytes) -> bool:
        if directory in (UNASSIGNED_DIR, MIGRATING_DIR):
            return is_any_missing
        return not is_directory_online(directory, registered)

    basis = ("kept", former.epoch, former.directories, state.image.features)
    partitions = leaving.partitions(state, basis, lambda: held_by(state, broker_id))
    lost = _replicas_in(state, broker_id, partitions, is_lost)
    in_sync = [key for key in partitions if key not in lost and state.index.is_in_isr(broker_id, key)]
    records = list(state.leader_and_isr_changes(lost, unclean_shutdown=broker_id))
    records += state.leader_and_isr_changes(in_sync, remove=broker_id)
    leaving.decided(state, partitions, records)
    return records


def _replicas_in(
    state: ControlState, broker_id: int, partitions: Iterable[TopicIdPartition], is_wanted: Callable[[bytes], bool]
) -> dict[TopicIdPartition, None]:
    """Return those partitions whose replica on the broker is in a wanted directory."""
    found: dict[TopicIdPartition, None] = {}
    for key in partitions:
        partition = state.image.topics.partition(*key)
        if partition is not None and is_wanted(partition.directory(broker_id)):
            found[key] = None
    return found


def _check_cluster_id(state: ControlState, cluster_id: str) -> None:
    if cluster_id != state.settings.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.settings.cluster_id}, but got cluster ID {cluster_id}",
        )


def _check_directories(state: ControlState, broker_id: int, directories: Sequence[bytes]) -> None:
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORIES for directory in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) != len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other_id, other in sorted(state.image.cluster.brokers.items()):
        if other_id == broker_id:
            continue
        for directory in directories:
            if directory in other.directories:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {other_id} is already registered with directory {uuid_to_str(directory)}",
                )


def _checked_features(levels: Mapping[str, int], request: BrokerRegistrationRequest) -> list[Feature]:
    """Return the broker's feature ranges; raise if a finalized level is outside of them."""
    ranges = ranges_of(request.features)
    ranges.setdefault(METADATA_VERSION, FeatureRange(METADATA_VERSION_MIN, METADATA_VERSION_MIN))
    for name, level in sorted(levels.items()):
        lowest, highest = ranges.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The"
                f" broker wants a version between {lowest} and {highest}, inclusive.",
            )
    return features_of(ranges)


def register_controller(
    state: ControlState, request: ControllerRegistrationRequest
) -> Outcome[ControllerRegistrationResponse]:
    if state.image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        zk_migration_ready=False,
        end_points=request.listeners,
        features=request.features,
    )
    return Outcome([record], ControllerRegistrationResponse(error_message=None))


def unregister_controller(state: ControlState, controller_id: int, voters: frozenset[int]) -> Outcome[None]:
    if state.image.features.metadata_version < MV_UNREGISTER_CONTROLLER:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support unregistering controllers.",
        )
    if controller_id not in state.image.cluster.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED, f"Controller ID {controller_id} is not currently registered"
        )
    if controller_id in voters:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Controller {controller_id} is still a voter of the quorum.")
    return Outcome([UnregisterControllerRecord(controller_id=controller_id)], None)


def unregister_broker(
    state: ControlState, request: UnregisterBrokerRequest, leaving: Leaving | None = None
) -> Outcome[UnregisterBrokerResponse | None]:
    """Decide to unregister a broker. The response is None as long as there is more to decide, as in `register_broker`."""
    broker_id = request.broker_id
    broker = state.image.cluster.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    leaving = Leaving() if leaving is None else leaving
    # The broker's disk will not come back, so it is removed from the ELR as well, as after an unclean shutdown.
    records = unclean_records(state, broker_id, leaving)
    if not leaving.is_done:
        return Outcome(records + _fence_unless_fenced(state, broker_id), None)
    records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    return Outcome(records, UnregisterBrokerResponse(error_message=None))


# Records of a change of a broker's state, for as many partitions as fit into one turn of the event loop: see leaving.py.
def fence_records(state: ControlState, broker_id: int, *, stops: bool = False) -> list[MetadataRecord]:
    """Fence a broker. Leaders are moved first, so that readers of the log see as few fenced leaders as possible."""
    records = list(state.leader_and_isr_changes(_led_first(state, broker_id), remove=broker_id))
    return [*records, fence_record(state, broker_id, stops=stops)]


def fence_record(state: ControlState, broker_id: int, *, stops: bool = False) -> MetadataRecord:
    """Fence a broker. With `stops` it is marked as shutting down, though it leads nothing: it has not died
    (broker/lost_leaders.py).
    """
    epoch = state.image.cluster.brokers[broker_id].epoch
    in_shutdown = ENTER_CONTROLLED_SHUTDOWN if stops else 0
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id, broker_epoch=epoch, fenced=FENCE, in_controlled_shutdown=in_shutdown
    )


def _fence_unless_fenced(state: ControlState, broker_id: int) -> list[MetadataRecord]:
    return [] if state.image.cluster.brokers[broker_id].fenced else [fence_record(state, broker_id)]


def unfence_records(state: ControlState, broker_id: int, broker_epoch: int) -> list[MetadataRecord]:
    """Unfence a broker: partitions without a leader that it may lead elect it."""
    first = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_epoch, fenced=UNFENCE)
    partitions = electable(state, broker_id)[:PARTITIONS_PER_TURN]
    return [first, *state.leader_and_isr_changes(partitions, add=broker_id)]


def _led_first(state: ControlState, broker_id: int) -> list[TopicIdPartition]:
    """Return partitions that the broker leads or is in sync for, at most PARTITIONS_PER_TURN, led ones first."""
    keys = dict.fromkeys(state.index.led_by(broker_id))
    if len(keys) < PARTITIONS_PER_TURN:
        keys.update(dict.fromkeys(state.index.in_isr(broker_id)))
    return list(keys)[:PARTITIONS_PER_TURN]


def controlled_shutdown_records(state: ControlState, broker_id: int, broker_epoch: int) -> list[MetadataRecord]:
    """Move leaders away. It is called for the first request of a controlled shutdown and all later ones, until the broker leads nothing."""
    broker = state.image.cluster.brokers[broker_id]
    records: list[MetadataRecord] = []
    if not broker.in_controlled_shutdown:
        records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=broker_epoch, in_controlled_shutdown=ENTER_CONTROLLED_SHUTDOWN
            )
        )
    records += state.leader_and_isr_changes(_led_first(state, broker_id), remove=broker_id)
    return records


def has_lost_all_directories(state: ControlState, broker_id: int, offline: Sequence[bytes]) -> bool:
    broker = state.image.cluster.brokers[broker_id]
    knows_directories = state.image.features.metadata_version >= MV_DIRECTORIES and bool(broker.directories)
    return knows_directories and set(broker.directories) <= set(offline)


def offline_directories_records(
    state: ControlState, broker_id: int, offline: Sequence[bytes], leaving: Leaving | None = None
) -> list[MetadataRecord]:
    """Remove the replicas in failed directories from ISR and ELR, as after an unclean shutdown: after the next start their
    logs may be empty, and a clean election must not choose them.

    The registration changes once `leaving` is done: until then it has the directories, and the next heartbeat continues.
    """
    broker = state.image.cluster.brokers[broker_id]
    lost = [directory for directory in broker.directories if directory in offline]
    leaving = Leaving() if leaving is None else leaving
    if not lost or state.image.features.metadata_version < MV_DIRECTORIES:
        leaving.start_over()
        return []

    def held() -> Iterable[TopicIdPartition]:
        return _replicas_in(state, broker_id, held_by(state, broker_id), lambda directory: directory in lost)

    partitions = leaving.partitions(state, ("directories", broker.epoch, lost, state.image.features), held)
    records = list(state.leader_and_isr_changes(partitions, unclean_shutdown=broker_id))
    leaving.decided(state, partitions, records)
    left = [directory for directory in broker.directories if directory not in lost]
    if left and leaving.is_done:
        # An empty list would mean "no change": see has_lost_all_directories for a broker that has lost all of them.
        records.append(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, log_dirs=left))
    return records


def cordoned_directories_records(
    state: ControlState, broker_id: int, cordoned: Sequence[bytes] | None
) -> list[MetadataRecord]:
    """Cordon directories, which then get no new replicas (KIP-1066)."""
    if cordoned is None or state.image.features.metadata_version < MV_CORDONED:
        return []
    broker = state.image.cluster.brokers[broker_id]
    wanted = tuple(sorted(cordoned))
    if broker.cordoned_directories == wanted:
        return []
    return [
        BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(wanted))
    ]


PRODUCER_ID_BLOCK_SIZE = 1_000
_PRODUCER_ID_MAX = (1 << 63) - 1


def allocate_producer_ids(
    state: ControlState, request: AllocateProducerIdsRequest
) -> Outcome[AllocateProducerIdsResponse]:
    """AllocateProducerIds: brokers get producer ids in blocks (KIP-730), so that no id is used twice, also across controllers."""
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    start = max(state.image.producer_ids.next_producer_id, 0)
    if start > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids of 63 bits have been handed out.")
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=PRODUCER_ID_BLOCK_SIZE)
    return Outcome([record], response)
