"""Routes of a controller's listeners, one row per API. The quorum's own APIs (Vote, Fetch, ...) are in raft/routes.py.

A request that is one decision (authorize, decide, respond after the commit) is a row with that decision; a handler that does more
is a function in handlers/.

The server generates ApiVersions from these rows. broker/routes.py lists the other steps of a new API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any

from ottla.controller.decisions.acls import create_acls, delete_acls
from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import allocate_producer_ids, register_controller
from ottla.controller.decisions.client_quotas import alter_client_quotas
from ottla.controller.decisions.control_state import ControlState
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import elect_leaders
from ottla.controller.decisions.outcome import Decision, Outcome, in_turns
from ottla.controller.decisions.reassignment import alter_partition_reassignments, list_partition_reassignments
from ottla.controller.decisions.scram import alter_user_scram_credentials
from ottla.controller.handlers import cluster, configs, delegation_tokens, envelope, topics
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.scram import describe_scram_credentials
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.releases import CONTROLLER
from ottla.server.authorization.authorizer import describe_acls
from ottla.server.authorization.operations import ALTER, ALTER_CONFIGS, CLUSTER_ACTION, DESCRIBE
from ottla.server.network.context import Reply, RequestContext
from ottla.server.network.route import Handler, Route, RouteTable

ControllerHandler = Callable[[ControllerComponents, Any, RequestContext], Any]


def decided(operation: int, decide: Callable[[ControlState, Any], Outcome[Any]]) -> ControllerHandler:
    """Return the handler. The client must be authorized for `operation` on the cluster."""

    @wraps(decide)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Reply[Any]:
        components.require_on_cluster(context, operation)
        return components.controller.write(lambda state: decide(state, request))

    return handle


def described(operation: int, describe: Callable[[ControllerComponents, Any], Any]) -> ControllerHandler:
    """Return the handler of a request that changes nothing. The client must be authorized for `operation` on the cluster."""

    @wraps(describe)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Any:
        components.require_on_cluster(context, operation)
        return describe(components, request)

    return handle


def decided_in_turns(operation: int, decide: Callable[[ControlState, Any], Decision[Any]]) -> ControllerHandler:
    """Return the handler of a request that may be about thousands of partitions."""

    @wraps(decide)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Reply[Any]:
        components.require_on_cluster(context, operation)
        return components.controller.write_in_turns(in_turns(lambda state: decide(state, request)))

    return handle


def in_time(handler: ControllerHandler) -> ControllerHandler:
    """Wrap the handler of a request with a `timeout_ms`: 0 times out, as in Kafka's event queue; others are decided at once."""

    @wraps(handler)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Any:
        if request.timeout_ms <= 0:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
        return handler(components, request, context)

    return handle


def of_acls(handler: ControllerHandler) -> ControllerHandler:
    """Wrap the handler of a request about access control entries, which only an authorizer has."""

    @wraps(handler)
    def handle(components: ControllerComponents, request: Any, context: RequestContext) -> Any:
        if not components.authorizer.enabled:
            raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        return handler(components, request, context)

    return handle


def _create_acls(components: ControllerComponents, request: Any, context: RequestContext) -> Reply[Any]:
    components.require_on_cluster(context, ALTER)
    return components.controller.write(lambda state: create_acls(state, request, components.world.rng))


ROUTES: tuple[tuple[ApiKey, ControllerHandler], ...] = (
    (ApiKey.CREATE_TOPICS, in_time(topics.handle_create)),
    (ApiKey.DELETE_TOPICS, in_time(topics.handle_delete)),
    (
        ApiKey.DESCRIBE_ACLS,
        described(DESCRIBE, lambda components, request: describe_acls(components.authorizer, request)),
    ),
    (ApiKey.CREATE_ACLS, of_acls(_create_acls)),
    (ApiKey.DELETE_ACLS, of_acls(decided(ALTER, delete_acls))),
    (ApiKey.DESCRIBE_CONFIGS, configs.handle_describe),
    (ApiKey.ALTER_CONFIGS, configs.handle_alter),
    (ApiKey.CREATE_PARTITIONS, in_time(topics.handle_create_partitions)),
    (ApiKey.ELECT_LEADERS, in_time(decided_in_turns(ALTER, elect_leaders))),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, configs.handle_alter_incrementally),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, in_time(decided_in_turns(ALTER, alter_partition_reassignments))),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, decided(DESCRIBE, list_partition_reassignments)),
    (ApiKey.ALTER_CLIENT_QUOTAS, decided(ALTER_CONFIGS, alter_client_quotas)),
    (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        described(
            DESCRIBE,
            lambda components, request: describe_scram_credentials(components.controller.loader.image.scram, request),
        ),
    ),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, decided(ALTER, alter_user_scram_credentials)),
    (ApiKey.ALTER_PARTITION, decided_in_turns(CLUSTER_ACTION, alter_partition)),
    (ApiKey.UPDATE_FEATURES, cluster.handle_update_features),
    (ApiKey.DESCRIBE_CLUSTER, cluster.handle_describe),
    (ApiKey.BROKER_REGISTRATION, cluster.handle_registration),
    (ApiKey.BROKER_HEARTBEAT, cluster.handle_heartbeat),
    (ApiKey.UNREGISTER_BROKER, cluster.handle_unregister_broker),
    (ApiKey.ALLOCATE_PRODUCER_IDS, decided(CLUSTER_ACTION, allocate_producer_ids)),
    (ApiKey.CONTROLLER_REGISTRATION, decided(CLUSTER_ACTION, register_controller)),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, decided_in_turns(CLUSTER_ACTION, assign_replicas_to_directories)),
    (ApiKey.CREATE_DELEGATION_TOKEN, delegation_tokens.handle_create),
    (ApiKey.RENEW_DELEGATION_TOKEN, delegation_tokens.handle_renew),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, delegation_tokens.handle_expire),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, delegation_tokens.handle_describe),
    (ApiKey.UNREGISTER_CONTROLLER, cluster.handle_unregister_controller),
)

#: Operation on the cluster, by API of the quorum.
QUORUM_OPERATIONS: Mapping[ApiKey, int] = {
    ApiKey.FETCH: CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: CLUSTER_ACTION,
    ApiKey.VOTE: CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: CLUSTER_ACTION,
    ApiKey.UPDATE_RAFT_VOTER: CLUSTER_ACTION,
    ApiKey.ADD_RAFT_VOTER: ALTER,
    ApiKey.REMOVE_RAFT_VOTER: ALTER,
    ApiKey.DESCRIBE_QUORUM: DESCRIBE,
}


def controller_routes(components: ControllerComponents, quorum: Iterable[Route]) -> list[Route]:
    """Return all rows of a controller's listener, bound to the dependencies of one controller."""
    routes = [Route(api_key, partial(handler, components)) for api_key, handler in ROUTES]
    routes += guard_quorum(components, quorum)
    inner = RouteTable(routes, components.controller.settings.advertised, CONTROLLER)
    return [*routes, Route(ApiKey.ENVELOPE, partial(envelope.handle, components, inner))]


def guard_quorum(components: ControllerComponents, quorum: Iterable[Route]) -> list[Route]:
    """Add authorization to the routes. Without an authorizer it returns them unchanged, so that the quorum's fetches cost no more."""
    if not components.authorizer.enabled:
        return list(quorum)
    return [
        Route(route.api_key, _guarded(components, QUORUM_OPERATIONS[ApiKey(route.api_key)], route.handler))
        for route in quorum
    ]


def _guarded(components: ControllerComponents, operation: int, handler: Handler) -> Handler:
    def handle(request: Any, context: RequestContext) -> Any:
        components.require_on_cluster(context, operation)
        return handler(request, context)

    return handle
