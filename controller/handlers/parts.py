"""What the controller's handlers work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from ottla.controller.decisions.configs import ConfigDecisions
from ottla.controller.periodic import PeriodicDuties
from ottla.controller.runtime import Controller
from ottla.server.security.authorizer import AllowAll, Authorizer
from ottla.server.world import World


class Quorum(Protocol):
    """The quorum as decisions about features and controllers need it."""

    @property
    def voter_ids(self) -> frozenset[int]: ...

    @property
    def kraft_version(self) -> int: ...

    def raise_kraft_version(self, level: int, *, dry_run: bool) -> None:
        """Appended at once, before the records of the decision that wants it; KafkaError where it cannot be."""


@dataclass(slots=True)
class ControllerParts:
    world: World
    controller: Controller
    duties: PeriodicDuties
    configs: ConfigDecisions
    quorum: Quorum
    authorizer: Authorizer = field(default_factory=AllowAll)
    # broker id -> the connection that its last heartbeat came by
    heartbeat_connections: dict[int, str] = field(default_factory=dict)
