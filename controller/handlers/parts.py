"""What the controller's handlers work with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from controller.control.configs import ConfigDecisions
from controller.periodic import PeriodicDuties
from controller.runtime import Controller
from server.security.authorizer import AllowAll, Authorizer
from server.world import World


class Voters(Protocol):
    """The quorum's members by node id, as decisions about features and controllers need them."""

    def __call__(self) -> frozenset[int]: ...


@dataclass(slots=True)
class ControllerParts:
    world: World
    controller: Controller
    duties: PeriodicDuties
    configs: ConfigDecisions
    voters: Voters
    authorizer: Authorizer = field(default_factory=AllowAll)
    # broker id -> the connection that its last heartbeat came by
    heartbeat_connections: dict[int, str] = field(default_factory=dict)
