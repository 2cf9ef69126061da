"""What a controller's listeners answer, one row per API. The quorum's own APIs (Vote, Fetch, ...) come from raft/.

ApiVersions is answered by the server from exactly these rows. What else a new API needs: broker/handlers/routes.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from controller.handlers import (
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    describe_cluster,
    elect_leaders,
    envelope,
    incremental_alter_configs,
    list_partition_reassignments,
    unregister_broker,
    unregister_controller,
    update_features,
)
from controller.handlers.parts import ControllerParts
from controller.handlers.quorum import guard_quorum
from protocol.api import ApiKey
from server.network.context import RequestContext
from server.network.route import Route, RouteTable

ControllerHandler = Callable[[ControllerParts, Any, RequestContext], Any]

ROUTES: tuple[tuple[ApiKey, ControllerHandler], ...] = (
    (ApiKey.CREATE_TOPICS, create_topics.handle),
    (ApiKey.DELETE_TOPICS, delete_topics.handle),
    (ApiKey.CREATE_ACLS, create_acls.handle),
    (ApiKey.DELETE_ACLS, delete_acls.handle),
    (ApiKey.ALTER_CONFIGS, alter_configs.handle),
    (ApiKey.CREATE_PARTITIONS, create_partitions.handle),
    (ApiKey.ELECT_LEADERS, elect_leaders.handle),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments.handle),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments.handle),
    (ApiKey.ALTER_CLIENT_QUOTAS, alter_client_quotas.handle),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, alter_user_scram_credentials.handle),
    (ApiKey.ALTER_PARTITION, alter_partition.handle),
    (ApiKey.UPDATE_FEATURES, update_features.handle),
    (ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle),
    (ApiKey.BROKER_REGISTRATION, broker_registration.handle),
    (ApiKey.BROKER_HEARTBEAT, broker_heartbeat.handle),
    (ApiKey.UNREGISTER_BROKER, unregister_broker.handle),
    (ApiKey.ALLOCATE_PRODUCER_IDS, allocate_producer_ids.handle),
    (ApiKey.CONTROLLER_REGISTRATION, controller_registration.handle),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, assign_replicas_to_dirs.handle),
    (ApiKey.UNREGISTER_CONTROLLER, unregister_controller.handle),
)


def controller_routes(parts: ControllerParts, quorum: Iterable[Route]) -> list[Route]:
    """All rows of a controller's listener, bound to the parts of one controller."""
    routes = [Route(api_key, partial(handler, parts)) for api_key, handler in ROUTES]
    routes += guard_quorum(parts, quorum)
    inner = RouteTable(routes)
    return [*routes, Route(ApiKey.ENVELOPE, partial(envelope.handle, parts, inner))]
