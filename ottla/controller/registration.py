"""Registration of a controller (KIP-919) with the active controller, which may be itself.

By the registrations the active controller checks that every voter supports a feature before it raises the feature's level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from ottla.controller.decisions.brokers import register_controller
from ottla.controller.metadata.brokers import RegisteredEndpoint
from ottla.controller.metadata.delta import MetadataDelta
from ottla.controller.metadata.image import MetadataImage
from ottla.controller.runtime import Controller
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CONTROLLER_REGISTRATION
from ottla.protocol.messages.controller_registration import ControllerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.server.clock import pause
from ottla.server.network.channel_protocol import ChannelClosed
from ottla.server.network.client import Channel
from ottla.server.world import World

log = logging.getLogger(__name__)

RETRY_MS = 100


class ControllerRegistrar:
    """A publisher that registers again whenever the metadata lacks this incarnation."""

    def __init__(
        self,
        world: World,
        controller: Controller,
        incarnation_id: bytes,
        endpoints: Sequence[RegisteredEndpoint],
        connect: Callable[[], Channel | None],
        features: Mapping[str, tuple[int, int]],
    ) -> None:
        """Takes `connect`, which returns a channel to the active controller, or None if that is unknown."""
        self._world = world
        self._controller = controller
        self._incarnation_id = incarnation_id
        self._connect = connect
        self._running = False
        self._stopped = False
        self._request = ControllerRegistrationRequest(
            controller_id=controller.node_id,
            incarnation_id=incarnation_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in features.items()
            ],
        )

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.check()

    def check(self) -> None:
        """Registers unless that is done or in progress. It is called after each change of the metadata or the leader."""
        if not self._running and not self._stopped and self._needed():
            self._running = True
            self._world.spawn(self._register(), "controller-registration")

    def stop(self) -> None:
        self._stopped = True

    def _needed(self) -> bool:
        image = self._controller.image
        if image.features.metadata_version < MV_CONTROLLER_REGISTRATION:
            return False
        known = image.cluster.controllers.get(self._controller.node_id)
        return known is None or known.incarnation_id != self._incarnation_id

    async def _register(self) -> None:
        try:
            while self._needed() and not self._stopped:
                if await self._attempt():
                    return  # the metadata will contain the registration
                await pause(self._world.clock, RETRY_MS)
        finally:
            self._running = False

    async def _attempt(self) -> bool:
        try:
            if self._controller.is_active:
                self._controller.write(lambda state: register_controller(state, self._request))
                return True
            channel = self._connect()
            if channel is None:
                return False
            response = await channel.request(self._request)
        except (KafkaError, ChannelClosed) as error:
            log.info("Could not register this controller: %s", error)
            return False
        if response.error_code != ErrorCode.NONE:
            log.info("Could not register this controller: %s", ErrorCode(response.error_code).name)
        return bool(response.error_code == ErrorCode.NONE)
