"""Decision about one BrokerHeartbeat. It changes the soft state (heartbeats.py); the hard state changes only by the records."""

from __future__ import annotations

from ottla.controller.decisions.brokers import (
    controlled_shutdown_records,
    cordoned_directories_records,
    fence_record,
    fence_records,
    has_lost_all_directories,
    offline_directories_records,
    unfence_records,
)
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.heartbeats import BrokerControlState, Heartbeats
from ottla.controller.decisions.leaving import Leaving, unclean_records
from ottla.controller.decisions.outcome import Outcome
from ottla.protocol.internal_topics.metadata_records import MetadataRecord
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse


def process_heartbeat(
    state: ControlState,
    heartbeats: Heartbeats,
    request: BrokerHeartbeatRequest,
    *,
    log_end: int,
    now_ms: int,
    leaving: Leaving | None = None,
) -> Outcome[BrokerHeartbeatResponse | None]:
    """Decide on a heartbeat; `log_end` is the offset of the first record of the decision.

    It returns None if failed directories have more partitions than fit into this turn; call it again in the next turn, with the
    same `leaving`.
    """
    leaving = Leaving() if leaving is None else leaving
    broker_id, broker_epoch = request.broker_id, request.broker_epoch
    state.check_broker_epoch(broker_id, broker_epoch)
    # The broker epoch is the offset of its registration, the last record of that decision.
    caught_up = request.current_metadata_offset >= broker_epoch
    has_lost_all = has_lost_all_directories(state, broker_id, request.offline_log_dirs)
    current, following = heartbeats.next_state(
        broker_id,
        wants_fence=request.want_fence or has_lost_all,
        wants_shutdown=request.want_shut_down,
        caught_up=caught_up,
        leads_any=state.index.leads_any(broker_id),
    )
    records: list[MetadataRecord] = []
    if following is not current:
        match following:
            case BrokerControlState.FENCED | BrokerControlState.SHUTDOWN_NOW:
                if not state.image.cluster.brokers[broker_id].fenced:
                    if has_lost_all:  # it leaves the ELRs as well
                        records += [*unclean_records(state, broker_id, leaving), fence_record(state, broker_id)]
                    else:
                        stops = following is BrokerControlState.SHUTDOWN_NOW
                        records += fence_records(state, broker_id, stops=stops)
            case BrokerControlState.UNFENCED:
                records += unfence_records(state, broker_id, broker_epoch)
            case BrokerControlState.CONTROLLED_SHUTDOWN:
                records += controlled_shutdown_records(state, broker_id, broker_epoch)
    elif current is BrokerControlState.CONTROLLED_SHUTDOWN and state.index.leads_any(broker_id):
        records += controlled_shutdown_records(state, broker_id, broker_epoch)
    if following is BrokerControlState.CONTROLLED_SHUTDOWN and (records or following is not current):
        heartbeats.begin_controlled_shutdown(broker_id, log_end + len(records) - 1)
    heartbeats.touch(broker_id, following.fenced, request.current_metadata_offset, now_ms)
    if not records:
        # Fencing or moving leaders in the same batch would use an image without these records.
        records += offline_directories_records(state, broker_id, request.offline_log_dirs, leaving)
    if not leaving.is_done:
        return Outcome(records, None)
    records += cordoned_directories_records(state, broker_id, request.cordoned_log_dirs)
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=following.fenced,
        should_shut_down=following is BrokerControlState.SHUTDOWN_NOW,
    )
    return Outcome(records, response)
