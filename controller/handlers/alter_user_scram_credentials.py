"""AlterUserScramCredentials: set or delete SCRAM credentials."""

from __future__ import annotations

from controller.decisions.scram import alter_user_scram_credentials
from controller.handlers.authorization import require_on_cluster
from controller.handlers.parts import ControllerParts
from protocol.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from server.network.context import RequestContext
from server.network.deferred import Deferred
from server.security.operations import ALTER


def handle(parts: ControllerParts, request: AlterUserScramCredentialsRequest, context: RequestContext) -> Deferred:
    require_on_cluster(parts, context, ALTER)
    return parts.controller.write(lambda state: alter_user_scram_credentials(state, request))
