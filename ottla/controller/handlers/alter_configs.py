"""AlterConfigs: replace the whole dynamic configuration of resources. IncrementalAlterConfigs is its successor."""

from __future__ import annotations

from ottla.controller.decisions.eligible import after_elrs
from ottla.controller.decisions.outcome import Outcome, in_turns
from ottla.controller.decisions.state import ControlState
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.handlers.config_requests import sort_out
from ottla.protocol.errors import ErrorCode
from ottla.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
)
from ottla.protocol.messages.shared_structs import AlterConfigsResourceResponse
from ottla.server.network.context import RequestContext
from ottla.server.network.reply import Reply


def handle(
    components: ControllerComponents, request: AlterConfigsRequest, context: RequestContext
) -> Reply[AlterConfigsResponse]:
    wanted, rejected = sort_out(components, context, request.resources)
    changes = [
        (each.resource_type, each.resource_name, {config.name: config.value for config in each.configs})
        for each in wanted
    ]

    def decide(state: ControlState) -> Outcome[AlterConfigsResponse]:
        records, results = components.configs.legacy_alter(state, changes, validate_only=request.validate_only)
        response = AlterConfigsResponse(
            responses=[
                AlterConfigsResourceResponse(
                    error_code=ErrorCode.NONE if error is None else error.code,
                    error_message=None if error is None else error.own_words,
                    resource_type=resource_type,
                    resource_name=resource,
                )
                for resource_type, resource, error in [*rejected, *results]
            ]
        )
        return Outcome(records, response)

    return components.controller.write_in_turns(in_turns(lambda state: after_elrs(state, decide)))
