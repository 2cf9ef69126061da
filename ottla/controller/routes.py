"""Routes of a controller's listeners, one row per API. The quorum's own APIs (Vote, Fetch, ...) are in raft/routes.py.

A request that is one decision is a row with that decision; a handler that does more is a file in handlers/.

The server generates ApiVersions from these rows. broker/routes.py lists the other steps of a new API.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ottla.controller.decisions.alter_partition import alter_partition
from ottla.controller.decisions.brokers import register_controller
from ottla.controller.decisions.client_quotas import alter_client_quotas
from ottla.controller.decisions.directories import assign_replicas_to_directories
from ottla.controller.decisions.elections import elect_leaders
from ottla.controller.decisions.producer_ids import allocate_producer_ids
from ottla.controller.decisions.reassignment import alter_partition_reassignments, list_partition_reassignments
from ottla.controller.decisions.scram import alter_user_scram_credentials
from ottla.controller.handlers import (
    alter_configs,
    broker_heartbeat,
    broker_registration,
    create_acls,
    create_partitions,
    create_topics,
    delegation_tokens,
    delete_acls,
    delete_topics,
    describe_acls,
    describe_cluster,
    describe_configs,
    describe_user_scram_credentials,
    envelope,
    incremental_alter_configs,
    unregister_broker,
    unregister_controller,
    update_features,
)
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.handlers.decided import ControllerHandler, decided, decided_in_turns, in_time
from ottla.controller.handlers.quorum import guard_quorum
from ottla.protocol.api import ApiKey
from ottla.server.authorization.operations import ALTER, ALTER_CONFIGS, CLUSTER_ACTION, DESCRIBE
from ottla.server.network.route import Route, RouteTable

ROUTES: tuple[tuple[ApiKey, ControllerHandler], ...] = (
    (ApiKey.CREATE_TOPICS, create_topics.handle),
    (ApiKey.DELETE_TOPICS, delete_topics.handle),
    (ApiKey.DESCRIBE_ACLS, describe_acls.handle),
    (ApiKey.CREATE_ACLS, create_acls.handle),
    (ApiKey.DELETE_ACLS, delete_acls.handle),
    (ApiKey.DESCRIBE_CONFIGS, describe_configs.handle),
    (ApiKey.ALTER_CONFIGS, alter_configs.handle),
    (ApiKey.CREATE_PARTITIONS, create_partitions.handle),
    (ApiKey.ELECT_LEADERS, in_time(decided_in_turns(ALTER, elect_leaders))),
    (ApiKey.INCREMENTAL_ALTER_CONFIGS, incremental_alter_configs.handle),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, in_time(decided_in_turns(ALTER, alter_partition_reassignments))),
    (ApiKey.LIST_PARTITION_REASSIGNMENTS, decided(DESCRIBE, list_partition_reassignments)),
    (ApiKey.ALTER_CLIENT_QUOTAS, decided(ALTER_CONFIGS, alter_client_quotas)),
    (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials.handle),
    (ApiKey.ALTER_USER_SCRAM_CREDENTIALS, decided(ALTER, alter_user_scram_credentials)),
    (ApiKey.ALTER_PARTITION, decided_in_turns(CLUSTER_ACTION, alter_partition)),
    (ApiKey.UPDATE_FEATURES, update_features.handle),
    (ApiKey.DESCRIBE_CLUSTER, describe_cluster.handle),
    (ApiKey.BROKER_REGISTRATION, broker_registration.handle),
    (ApiKey.BROKER_HEARTBEAT, broker_heartbeat.handle),
    (ApiKey.UNREGISTER_BROKER, unregister_broker.handle),
    (ApiKey.ALLOCATE_PRODUCER_IDS, decided(CLUSTER_ACTION, allocate_producer_ids)),
    (ApiKey.CONTROLLER_REGISTRATION, decided(CLUSTER_ACTION, register_controller)),
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, decided_in_turns(CLUSTER_ACTION, assign_replicas_to_directories)),
    (ApiKey.CREATE_DELEGATION_TOKEN, delegation_tokens.handle_create),
    (ApiKey.RENEW_DELEGATION_TOKEN, delegation_tokens.handle_renew),
    (ApiKey.EXPIRE_DELEGATION_TOKEN, delegation_tokens.handle_expire),
    (ApiKey.DESCRIBE_DELEGATION_TOKEN, delegation_tokens.handle_describe),
    (ApiKey.UNREGISTER_CONTROLLER, unregister_controller.handle),
)


def controller_routes(components: ControllerComponents, quorum: Iterable[Route]) -> list[Route]:
    """Returns all rows of a controller's listener, bound to the dependencies of one controller."""
    routes = [Route(api_key, partial(handler, components)) for api_key, handler in ROUTES]
    routes += guard_quorum(components, quorum)
    inner = RouteTable(routes, components.controller.settings.advertised)
    return [*routes, Route(ApiKey.ENVELOPE, partial(envelope.handle, components, inner))]
