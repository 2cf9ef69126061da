"""Routes of a controller's listeners, one row per API. The quorum's own APIs (Vote, Fetch, ...) are in raft/routes.py.

A request that is one decision is a row with that decision; a handler that does more is a file in handlers/.

The server generates ApiVersions from these rows. broker/routes.py lists the other steps of a new API.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import register_controller
from ottla.controller.decisions.client_quotas import alter_client_quotas
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import elect_leaders
from ottla.controller.decisions.producer_ids import allocate_producer_ids
from ottla.controller.decisions.reassignment import alter_partition_reassignments, list_partition_reassignments
from ottla.controller.decisions.scram import alter_user_scram_credentials
from ottla.controller.handlers import (
    acls,
    alter_configs,
    broker_heartbeat,
    broker_registration,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_topics,
    describe_cluster,
    describe_configs,
    envelope,
    unregister,
    update_features,
)
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.handlers.decided import ControllerHandler, decided, decided_in_turns, described, in_time
from ottla.controller.metadata.scram import describe_scram_credentials
from ottla.protocol.api import ApiKey
from ottla.server.authorization.describe_acls import describe_acls
from ottla.server.authorization.operations import ALTER, ALTER_CONFIGS, CLUSTER_ACTION, DESCRIBE
from ottla.server.network.context import RequestContext
from ottla.server.network.route import Handler, Route, RouteTable

ROUTES: tuple[tuple[ApiKey, ControllerHandler], ...] = (
    (ApiKey.CREATE_TOPICS, in_time(create_topics.handle)),
    (ApiKey.DELETE_TOPICS, in_time(delete_topics.handle)),
    (
        ApiKey.DESCRIBE_ACLS,
        described(DESCRIBE, lambda components, request: describe_acls(components.authorizer, request)),
    ),
    (ApiKey.CREATE_ACLS, acls.handle_create),
    (ApiKey.DELETE_ACLS, acls.handle_delete),
    (ApiKey.DESCRIBE_CONFIGS, describe_configs.handle),
    (ApiKey.ALTER_CONFIGS, alter_configs.handle_whole),
    (ApiKey.CREATE_PARTITIONS, in_time(create_partitions.handle)),
    (ApiKey.ELECT_LEADERS, in_time(decided_in_turns(ALTER, elect_leaders))),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, alter_configs.handle_incremental),
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
    (ApiKey.UPDATE_FEATURES, update_features.handle),
    (ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle),
    (ApiKey.BROKER_REGISTRATION, broker_registration.handle),
    (ApiKey.BROKER_HEARTBEAT, broker_heartbeat.handle),
    (ApiKey.UNREGISTER_BROKER, unregister.handle_broker),
    (ApiKey.ALLOCATE_PRODUCER_IDS, decided(CLUSTER_ACTION, allocate_producer_ids)),
    (ApiKey.CONTROLLER_REGISTRATION, decided(CLUSTER_ACTION, register_controller)),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, decided_in_turns(CLUSTER_ACTION, assign_replicas_to_directories)),
    (ApiKey.CREATE_DELEGATION_TOKEN, delegation_tokens.handle_create),
    (ApiKey.RENEW_DELEGATION_TOKEN, delegation_tokens.handle_renew),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, delegation_tokens.handle_expire),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, delegation_tokens.handle_describe),
    (ApiKey.UNREGISTER_CONTROLLER, unregister.handle_controller),
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
    """Returns all rows of a controller's listener, bound to the dependencies of one controller."""
    routes = [Route(api_key, partial(handler, components)) for api_key, handler in ROUTES]
    routes += guard_quorum(components, quorum)
    inner = RouteTable(routes, components.controller.settings.advertised)
    return [*routes, Route(ApiKey.ENVELOPE, partial(envelope.handle, components, inner))]


def guard_quorum(components: ControllerComponents, quorum: Iterable[Route]) -> list[Route]:
    """Adds authorization to the routes. Without an authorizer it returns them unchanged, so that the quorum's fetches cost no more."""
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
