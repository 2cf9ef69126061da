"""The dependencies of the controller's handlers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.periodic import ScheduledTasks
from ottla.controller.runtime import Controller
from ottla.server.authorization.authorizer import AllowAll, Authorizer
from ottla.server.network.context import Peer
from ottla.server.quotas.clients import ClientQuotas
from ottla.server.sasl.delegation_tokens import TokensByHmac
from ottla.server.world import World


class Quorum(Protocol):
    """The interface to the quorum for decisions about features and controllers."""

    @property
    def voter_ids(self) -> frozenset[int]: ...

    @property
    def kraft_version(self) -> int: ...

    def raise_kraft_version(self, level: int, *, dry_run: bool) -> None:
        """Raises kraft.version: its records are appended at once, before those of the decision. Raises KafkaError if that is impossible."""


@dataclass(slots=True)
class ControllerComponents:
    world: World
    controller: Controller
    scheduled_tasks: ScheduledTasks
    configs: ConfigDecisions
    quorum: Quorum
    quotas: ClientQuotas
    authorizer: Authorizer = field(default_factory=AllowAll)
    #: The texts of the properties file, for DescribeConfigs.
    static_configs: Mapping[str, str] = field(default_factory=dict)
    #: None if there are no delegation tokens.
    tokens: TokensByHmac | None = None
    #: By broker id, the newest connection that heartbeats came on and that is open.
    heartbeat_connections: dict[int, Peer] = field(default_factory=dict)
