"""The nodes of the cluster: BrokerRegistration, BrokerHeartbeat, UnregisterBroker, UnregisterController, DescribeCluster, UpdateFeatures."""

from __future__ import annotations

from ottla.controller.decisions.broker_heartbeat import process_heartbeat
from ottla.controller.decisions.brokers import register_broker, unregister_broker, unregister_controller
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.eligible import after_elrs
from ottla.controller.decisions.features import QuorumFeatures, raised_kraft_version, response_to, update_features
from ottla.controller.decisions.leaving import Leaving
from ottla.controller.decisions.outcome import Outcome, in_turns
from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CONTROLLER_REGISTRATION
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.protocol.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse
from ottla.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from ottla.server.authorization.operations import ALTER, CLUSTER_ACTION
from ottla.server.network.context import Reply, RequestContext

ENDPOINT_CONTROLLER = 2


def handle_registration(
    components: ControllerComponents, request: BrokerRegistrationRequest, context: RequestContext
) -> Reply[BrokerRegistrationResponse]:
    """BrokerRegistration: a broker registers, and is fenced at first (KIP-631)."""
    components.require_on_cluster(context, CLUSTER_ACTION)
    controller = components.controller

    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[BrokerRegistrationResponse | None]:
        has_session = controller.heartbeats.has_session(request.broker_id, controller.clock.mono_ms())
        try:
            records, epoch = register_broker(
                state, request, controller.next_offset, has_session=has_session, leaving=leaving
            )
        except KafkaError:
            # The first turns may have fenced the former incarnation: the rest of its partitions is decided as for any fenced
            # broker.
            components.scheduled_tasks.broker_changed(request.broker_id)
            raise
        return Outcome(records, None if epoch is None else BrokerRegistrationResponse(broker_epoch=epoch))

    return controller.write_in_turns(decide)


def handle_heartbeat(
    components: ControllerComponents, request: BrokerHeartbeatRequest, context: RequestContext
) -> Reply[BrokerHeartbeatResponse]:
    """BrokerHeartbeat: a broker keeps its session, and requests to be fenced, unfenced or shut down.

    The connection of the heartbeats is watched: when it breaks, the broker has a short grace period before it is fenced.
    """
    components.require_on_cluster(context, CLUSTER_ACTION)
    controller = components.controller

    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[BrokerHeartbeatResponse | None]:
        now_ms, log_end = controller.clock.mono_ms(), controller.next_offset
        outcome = process_heartbeat(
            state, controller.heartbeats, request, log_end=log_end, now_ms=now_ms, leaving=leaving
        )
        if outcome.records and outcome.response is not None:
            components.scheduled_tasks.broker_changed(request.broker_id)
        return outcome

    answer = controller.write_in_turns(decide)
    _watch(components, request.broker_id, context)
    components.scheduled_tasks.check_sessions()
    return answer


def _watch(components: ControllerComponents, broker_id: int, context: RequestContext) -> None:
    """Watch the broker's newest connection. An old one may have been cut: its last requests come late, and then its close."""
    connection = context.connection
    newest = components.heartbeat_connections.get(broker_id)
    if newest is not None and newest.opened_ns >= connection.opened_ns:
        return
    components.heartbeat_connections[broker_id] = connection

    def closed() -> None:
        if components.heartbeat_connections.get(broker_id) is connection:
            del components.heartbeat_connections[broker_id]
            components.scheduled_tasks.connection_lost(broker_id)

    connection.on_close(closed)


def handle_unregister_broker(
    components: ControllerComponents, request: UnregisterBrokerRequest, context: RequestContext
) -> Reply[UnregisterBrokerResponse]:
    """UnregisterBroker: forget a broker that will not come back, in as many turns as its partitions take."""
    components.require_on_cluster(context, ALTER)
    leaving = Leaving()

    def decide(state: ControlState) -> Outcome[UnregisterBrokerResponse | None]:
        try:
            return unregister_broker(state, request, leaving)
        except KafkaError:
            # Earlier turns may have fenced the broker: the scheduled tasks decide about the rest of its partitions.
            components.scheduled_tasks.broker_changed(request.broker_id)
            raise

    return components.controller.write_in_turns(decide)


def handle_unregister_controller(
    components: ControllerComponents, request: UnregisterControllerRequest, context: RequestContext
) -> Reply[UnregisterControllerResponse]:
    """UnregisterController: forget a controller that will not come back (KIP-1312)."""
    components.require_on_cluster(context, ALTER)
    voters = components.quorum.voter_ids
    response = UnregisterControllerResponse(error_message=None)
    return components.controller.write(
        lambda state: Outcome(unregister_controller(state, request.controller_id, voters).records, response)
    )


def handle_describe(
    components: ControllerComponents, request: DescribeClusterRequest, context: RequestContext
) -> DescribeClusterResponse:
    """DescribeCluster on a controller's listener: the controllers, for clients that bootstrap from them (KIP-919).

    Respond from the committed image, on any controller.
    """
    controller = components.controller
    image = controller.loader.image
    if image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "Direct-to-controller communication is not supported with the current MetadataVersion.",
        )
    components.require_on_cluster(context, ALTER)
    if request.endpoint_type != ENDPOINT_CONTROLLER:
        # Clients of version 0 do not know the other error.
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if context.api_version else ErrorCode.INVALID_REQUEST
        raise KafkaError(
            code, "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        )
    nodes = []
    for controller_id, registration in sorted(image.cluster.controllers.items()):
        endpoint = registration.endpoints.get(context.connection.listener_name)
        if endpoint is not None:
            nodes.append(DescribeClusterBroker(broker_id=controller_id, host=endpoint.host, port=endpoint.port))
    return DescribeClusterResponse(
        endpoint_type=ENDPOINT_CONTROLLER,
        cluster_id=controller.settings.cluster_id,
        controller_id=controller.leader_id,
        brokers=nodes,
    )


def handle_update_features(
    components: ControllerComponents, request: UpdateFeaturesRequest, context: RequestContext
) -> Reply[UpdateFeaturesResponse]:
    """UpdateFeatures: raise or lower finalised feature levels."""
    components.require_on_cluster(context, ALTER)
    quorum = QuorumFeatures(components.quorum.voter_ids, components.quorum.state.voters.kraft_version)

    def decide(state: ControlState) -> Outcome[UpdateFeaturesResponse]:
        outcome = update_features(state, request, context.api_version, quorum)
        level = raised_kraft_version(request, quorum)
        if level is not None and not outcome.response.error_code:
            # kraft.version is raised last, when no other check can fail: its records are the quorum's, and could not be taken
            # back with the batch.
            try:
                components.quorum.raise_kraft_version(level, dry_run=request.validate_only)
            except KafkaError as error:
                return Outcome([], response_to(request, context.api_version, error))
        return outcome

    return components.controller.write_in_turns(in_turns(lambda state: after_elrs(state, decide)))
