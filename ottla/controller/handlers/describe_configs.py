"""DescribeConfigs (32) on a controller's listener, for clients that bootstrap from controllers (KIP-919)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.decisions.control_settings import ControlSettings
from ottla.controller.handlers.components import ControllerComponents
from ottla.controller.metadata.describe_configs import describe_configs, guard_of, result_of
from ottla.controller.metadata.image import MetadataImage
from ottla.protocol.errors import KafkaError
from ottla.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from ottla.server.authorization.operations import AUTHORIZATION_ERRORS, DESCRIBE_CONFIGS
from ottla.server.config.dynamic import Levels, broker_values
from ottla.server.config.key import Values
from ottla.server.network.context import RequestContext


class ControllerConfigs:
    """The configuration of a controller: its properties file, below what the metadata has for its node id and for all nodes."""

    def __init__(self, settings: ControlSettings, static: Mapping[str, str], image: MetadataImage) -> None:
        self.node_id = node_id = settings.node_id
        self.advertised = settings.advertised
        self.levels = Levels(dict(image.configs.for_broker(node_id)), dict(image.configs.for_broker("")), static)

    @property
    def values(self) -> Values:
        return broker_values(self.levels, [])


def handle(
    components: ControllerComponents, request: DescribeConfigsRequest, context: RequestContext
) -> DescribeConfigsResponse:
    image = components.controller.loader.image
    configs = ControllerConfigs(components.controller.settings, components.static_configs, image)
    rejected = []
    allowed = []
    for resource in request.resources:
        guard = guard_of(resource)
        if guard is None or components.authorizer.allows(context, DESCRIBE_CONFIGS, *guard):
            allowed.append(resource)
        else:
            code = AUTHORIZATION_ERRORS[guard[0]]
            rejected.append(result_of(resource, KafkaError(code, code.message)))
    request.resources = allowed
    response = describe_configs(image, configs, request)
    response.results += rejected
    return response
