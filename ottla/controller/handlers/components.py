"""The dependencies of the controller's handlers: by them a handler authorizes its client and finds its quota."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.periodic import ScheduledTasks
from ottla.controller.raft.driver import RaftNode
from ottla.controller.runtime import Controller
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.slotted import mutable
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.authorization.operations import CLUSTER, CLUSTER_NAME, TOPIC
from ottla.server.network.context import Peer, RequestContext
from ottla.server.quotas.clients import ClientQuotas, MutationQuota
from ottla.server.sasl.delegation_tokens import TokensByHmac
from ottla.server.world import World


@mutable
class ControllerComponents:
    world: World
    controller: Controller
    scheduled_tasks: ScheduledTasks
    configs: ConfigDecisions
    quorum: RaftNode
    quotas: ClientQuotas
    authorizer: Authorizer = field(default_factory=AllowAll)
    #: The texts of the properties file, for DescribeConfigs.
    static_configs: Mapping[str, str] = field(default_factory=dict)
    #: None if there are no delegation tokens.
    tokens: TokensByHmac | None = None
    #: For each broker id the newest open connection on which heartbeats came.
    heartbeat_connections: dict[int, Peer] = field(default_factory=dict)

    def allows_on_cluster(self, context: RequestContext, operation: int) -> bool:
        return self.authorizer.allows(context, operation, CLUSTER, CLUSTER_NAME)

    def require_on_cluster(self, context: RequestContext, operation: int) -> None:
        if not self.allows_on_cluster(context, operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def allowed_topics(self, context: RequestContext, operation: int, names: Iterable[str]) -> frozenset[str]:
        return frozenset(name for name in names if self.authorizer.allows(context, operation, TOPIC, name))

    def mutation_quota(self, context: RequestContext, *, strict_since: int) -> MutationQuota:
        """Return the quota of a request; `strict_since` is the first version whose clients know THROTTLING_QUOTA_EXCEEDED."""
        principal = context.connection.principal
        return self.quotas.mutations(principal.name, context.client_id, strict=context.api_version >= strict_since)
