"""A broker's life cycle: registration, catching up with the metadata, unfencing, heartbeats, controlled shutdown.

broker_state.py has the states and the reasons of each change. One task sends all requests, one at a
time. A heartbeat is sent at once when the metadata has caught up, when the broker becomes ready, when another controller
leads, or when a directory fails; else after broker.heartbeat.interval.ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ottla.broker.cluster.broker_state import TRANSITIONS, BrokerState
from ottla.broker.cluster.channels import ControllerChannel
from ottla.controller.metadata.cluster import RegisteredEndpoint
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.features import MV_CORDONED, MV_DIRECTORIES, supported_levels
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest
from ottla.protocol.messages.shared_structs import Feature, Listener
from ottla.protocol.primitives import new_uuid
from ottla.server.world import World


class RegistrationRejected(Exception):
    """The controller rejected the registration; the text has the reason and a remedy."""


class NoLogDirectory(RegistrationRejected):
    """Every log directory of this broker has failed."""


#: Permanent errors of a registration.
FATAL = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the cluster has another cluster id: this node's log directories belong to a"
    " different cluster (see meta.properties); point it to its own cluster or to empty directories",
    ErrorCode.INVALID_REGISTRATION: "the controller refused the registration: a log directory of this node is registered"
    " by another broker, or copied from one; give this node directories of its own",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has feature levels that this release does not know; upgrade this node",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "this node may not act as a broker (ClusterAction)",
}
DUPLICATE_ID = (
    "another live broker has the same node id; give this node an id of its own, or wait until the other one is fenced"
)
TOO_OLD = (
    "the cluster has feature levels that Kafka {} does not know, which this node emulates (ottla.advertised.release):"
    " start it as the release that the cluster has, or a newer one, or give it empty directories"
)
NO_DIRECTORY_LEFT = (
    "all of its log directories have failed; see the errors above, repair or replace the disks, and start it again"
)
REPLACED = (
    "another process has taken over this node's id while this one was silent; only one may run: stop the other, or give"
    " one of them an id and log directories of its own"
)


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The fields of the registration that do not change while the process runs."""

    node_id: int
    cluster_id: str
    endpoints: Sequence[RegisteredEndpoint]
    directories: Sequence[bytes]
    rack: str | None = None
    #: The broker epoch in the clean-shutdown mark; -1 if there was none: the controller then removes the broker from all ISRs and ELRs.
    previous_broker_epoch: int = -1
    features: Mapping[str, tuple[int, int]] = field(default_factory=supported_levels)
    #: The older release of Kafka that the node shows clients, if it does.
    emulates: str | None = None


log = logging.getLogger(__name__)

#: The delay after a failure, as Kafka's: doubled each time, up to broker.session.timeout.ms / 2 there.
RETRY_MS_MIN = 100
RETRY_MS_MAX = 1_000
#: The heartbeat interval during a controlled shutdown, so that a controlled restart takes at most 0.2 s.
SHUTDOWN_POLL_MS = 10


class BrokerLifecycle:
    """Registers the broker and sends its heartbeats. As a publisher of metadata it sends one at once while the broker is fenced."""

    def __init__(
        self,
        world: World,
        identity: BrokerIdentity,
        controller: ControllerChannel,
        metadata_offset: Callable[[], int],
        *,
        heartbeat_interval_ms: int = 2_000,
        session_timeout_ms: int = 9_000,
        registration_timeout_ms: int = 60_000,
    ) -> None:
        """Take `metadata_offset`, the last metadata offset that this broker has applied."""
        self.state = BrokerState.NOT_RUNNING
        self.incarnation_id = new_uuid(world.rng)
        self.broker_epoch = -1
        #: The time of sending of the last heartbeat that has a response. The session at the controller began later.
        self.contact_ms = world.clock.mono_ms()
        self._world = world
        self._identity = identity
        self._controller = controller
        self._metadata_offset = metadata_offset
        self._heartbeat_interval_ms = heartbeat_interval_ms
        # A request that times out closes its connection, and the controller then fences the broker at once. So a slow controller, or a
        # slow broker, gets as much time as in Kafka. A change of the controller is noticed sooner, by the quorum's metadata.
        self._answer_timeout_ms = max(heartbeat_interval_ms, session_timeout_ms // 2)
        self._registration_timeout_ms = registration_timeout_ms
        self._ready = False
        self._registered = False
        #: True if the same process must register again, with the same epoch.
        self._is_outdated = False
        self._offline_directories: list[bytes] = []
        self._cordoned_directories: list[bytes] = []
        #: True once the metadata version has cordoned directories: an older controller cannot read a heartbeat with them.
        self._may_name_cordoned = False
        self._wake = asyncio.Event()
        self._left_in_order = False
        self._replaced = False
        #: Called for a rejection after the start, when no caller waits for `unfenced` any more.
        self.on_rejected: Callable[[RegistrationRejected], None] = lambda error: None
        loop = asyncio.get_running_loop()
        self.caught_up: asyncio.Future[None] = loop.create_future()
        self.unfenced: asyncio.Future[None] = loop.create_future()
        self._may_stop: asyncio.Future[None] = loop.create_future()
        # A new controller has no heartbeat of this broker yet: one is sent at once to keep the session.
        controller.on_leader_change = self._wake.set

    def start(self) -> None:
        self._become(BrokerState.STARTING)
        self._world.spawn(self._run(), "broker-lifecycle")

    def ready_to_unfence(self) -> None:
        """Allow unfencing, after the logs are recovered and the listeners are open."""
        self._ready = True
        self._wake.set()

    def directory_failed(self, directory_id: bytes) -> None:
        """Report a failed directory to the controller at once, which moves leaders away from it."""
        if directory_id not in self._offline_directories:
            self._offline_directories.append(directory_id)
            self._wake.set()

    def _check_directories_left(self) -> None:
        """End the process, as Kafka does, if all log directories have failed."""
        directories = set(self._identity.directories)
        if directories and directories <= set(self._offline_directories):
            raise NoLogDirectory(f"Broker {self._identity.node_id} cannot go on: {NO_DIRECTORY_LEFT}")

    def cordon(self, directories: Sequence[bytes]) -> None:
        """Set the directories that get no new replicas (cordoned.log.dirs, KIP-1066)."""
        self._cordoned_directories = sorted(directories)
        self._wake.set()

    def is_replaced_in(self, image: MetadataImage) -> bool:
        """Return True if another process has registered with this node id: the image's leaders are then that process's.

        Otherwise both processes would lead, and each would acknowledge records that the other does not have.
        """
        own = image.cluster.brokers.get(self._identity.node_id)
        return self._registered and own is not None and own.epoch > self.broker_epoch

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Wake a fenced broker, which has now applied more metadata."""
        self._may_name_cordoned = image.features.metadata_version >= MV_CORDONED
        if self.is_replaced_in(image):
            self._replaced = True
            self._wake.set()
            return
        if self.state in (BrokerState.STARTING, BrokerState.PENDING_CONTROLLED_SHUTDOWN):
            self._wake.set()
        if self._lacks_directories(image) and not self._is_outdated:
            log.info(
                "Broker %d registers again: the metadata version knows log directories now", self._identity.node_id
            )
            self._is_outdated = True
            self._wake.set()
        if (
            self._registered
            and self._identity.node_id not in image.cluster.brokers
            and image.offset > self.broker_epoch
        ):
            log.warning("Broker %d was unregistered; registering again", self._identity.node_id)
            self._registered = False
            self._wake.set()

    def _lacks_directories(self, image: MetadataImage) -> bool:
        """Return True if the registration is from a metadata.version below 17, which was raised since: the controller does not know
        this broker's directories, and can neither place replicas in them nor handle a failed one (KIP-858)."""
        own = image.cluster.brokers.get(self._identity.node_id)
        return (
            own is not None
            and own.epoch == self.broker_epoch
            and not own.directories
            and image.features.metadata_version >= MV_DIRECTORIES
        )

    async def controlled_shutdown(self, timeout_ms: int) -> bool:
        """Have the controller move the leaders away; return True if that was completed in time."""
        if self.state is BrokerState.NOT_RUNNING or self.state is BrokerState.SHUTTING_DOWN:
            return True
        if not self._registered:
            self.stop()
            return False
        if self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self._become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        self._wake.set()
        timer = self._world.clock.call_later(timeout_ms, self.stop)
        try:
            await self._may_stop
        finally:
            timer.cancel()
        return self._left_in_order

    def _become(self, state: BrokerState) -> None:
        assert state in TRANSITIONS[self.state], f"broker goes from {self.state} to {state}"
        self.state = state

    def stop(self) -> None:
        """End heartbeats, after a controlled shutdown or without one."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._become(BrokerState.SHUTTING_DOWN)
        if not self._may_stop.done():
            self._may_stop.set_result(None)
        self.caught_up.cancel()
        self.unfenced.cancel()
        self._wake.set()

    async def _run(self) -> None:
        try:
            while self.state is not BrokerState.SHUTTING_DOWN:
                if self._replaced:
                    raise self._cannot_register(REPLACED)
                if not self._registered or self._is_outdated:
                    await self._register()
                else:
                    await self._beat()
        except RegistrationRejected as error:
            log.error("%s", error)
            self._end(error)
        except Exception as error:
            # A broker without heartbeats would serve clients until it is fenced, and never be unfenced.
            log.exception("The lifecycle of broker %d failed", self._identity.node_id)
            self._end(RegistrationRejected(f"Broker {self._identity.node_id} cannot go on: {error!r}"))

    def _end(self, error: RegistrationRejected) -> None:
        starting = [waiting for waiting in (self.caught_up, self.unfenced) if not waiting.done()]
        for waiting in starting:
            waiting.set_exception(error)
            waiting.exception()  # callers that wait receive it; without any, asyncio must not report it as never retrieved
        self.stop()
        if not starting:
            self.on_rejected(error)

    async def _register(self) -> None:
        """Retry until it succeeds; a permanent error, or a timeout before the first success, ends it."""
        deadline_ms = self._world.clock.mono_ms() + self._registration_timeout_ms
        retry_ms = RETRY_MS_MIN
        was_duplicate = False
        while self.state is not BrokerState.SHUTTING_DOWN:
            error = await self._try_to_register()
            if error is None:
                return
            if error in FATAL:
                older = self._identity.emulates if error is ErrorCode.UNSUPPORTED_VERSION else None
                raise self._cannot_register(TOO_OLD.format(older) if older else FATAL[error])
            is_duplicate = error is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if is_duplicate and self.broker_epoch >= 0:
                raise self._cannot_register(REPLACED)
            if self.broker_epoch < 0 and self._world.clock.mono_ms() + retry_ms > deadline_ms:
                raise self._cannot_register(DUPLICATE_ID if is_duplicate or was_duplicate else error.message)
            if is_duplicate and not was_duplicate:
                # The other process may be the former one of this node, whose session has not ended yet.
                was_duplicate = True
                log.warning("Broker %d cannot register yet: %s", self._identity.node_id, DUPLICATE_ID)
            await self._pause(retry_ms)
            retry_ms = min(2 * retry_ms, RETRY_MS_MAX)

    def _cannot_register(self, why: str) -> RegistrationRejected:
        return RegistrationRejected(f"Cannot register broker {self._identity.node_id}: {why}")

    async def _try_to_register(self) -> ErrorCode | None:
        self._check_directories_left()
        identity = self._identity
        request = BrokerRegistrationRequest(
            broker_id=identity.node_id,
            cluster_id=identity.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
                for each in identity.endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in identity.features.items()
            ],
            rack=identity.rack,
            log_dirs=sorted(set(identity.directories) - set(self._offline_directories)),
            previous_broker_epoch=identity.previous_broker_epoch if self.broker_epoch < 0 else -1,
        )
        try:
            response = await self._controller.request(request, timeout_ms=self._registration_timeout_ms)
        except KafkaError as error:
            log.info("Broker %d could not register: %s", identity.node_id, error)
            return error.code
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            log.info("Broker %d could not register: %s", identity.node_id, code.name)
            return code
        self.broker_epoch = response.broker_epoch
        self._registered = True
        self._is_outdated = False
        log.info("Broker %d is registered with epoch %d", identity.node_id, self.broker_epoch)
        return None

    async def _beat(self) -> None:
        """Send one heartbeat, and wait for the time of the next."""
        self._wake.clear()
        sent_ms, sent_offset = self._world.clock.mono_ms(), self._metadata_offset()
        is_stopping = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        request = BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=sent_offset,
            want_fence=not self._ready,
            want_shut_down=is_stopping,
            offline_log_dirs=sorted(self._offline_directories),
            cordoned_log_dirs=self._cordoned_directories if self._may_name_cordoned else None,
        )
        timeout_ms = self._heartbeat_interval_ms if is_stopping else self._answer_timeout_ms
        try:
            response = await self._controller.request(request, timeout_ms=timeout_ms)
        except KafkaError as error:
            self._check_directories_left()
            log.warning("Broker %d could not send a heartbeat: %s", self._identity.node_id, error)
            if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
                # No controller responded in a whole heartbeat interval: the quorum is stopping too, and no broker can take the leaders.
                self.stop()
                return
            await self._pause(RETRY_MS_MIN)
            return
        self.contact_ms = sent_ms
        self._check_directories_left()
        if response.error_code != ErrorCode.NONE:
            await self._refused(ErrorCode(response.error_code))
            return
        delay_ms = self._on_response(response, sent_offset)
        if delay_ms > 0:
            await self._pause(delay_ms)

    async def _refused(self, code: ErrorCode) -> None:
        log.warning("Broker %d sent a heartbeat and was answered %s", self._identity.node_id, code.name)
        if code is ErrorCode.STALE_BROKER_EPOCH:
            # An operator unregistered the broker, or another process has its id: the response to a new registration shows which.
            self._registered = False
        await self._pause(RETRY_MS_MIN)

    def _on_response(self, response: BrokerHeartbeatResponse, sent_offset: int) -> int:
        """Handle a heartbeat's response; return the delay before the next heartbeat."""
        if self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                self._left_in_order = True
                self.stop()
            return SHUTDOWN_POLL_MS
        if self.state is BrokerState.STARTING and response.is_caught_up:
            log.info("Broker %d has caught up with the metadata", self._identity.node_id)
            self._become(BrokerState.RECOVERY)
            if not self.caught_up.done():
                self.caught_up.set_result(None)
            if self._ready and response.is_fenced:
                return 0
        if not response.is_fenced:
            if self.state is BrokerState.RECOVERY:
                log.info("Broker %d has been unfenced", self._identity.node_id)
                self._become(BrokerState.RUNNING)
                if not self.unfenced.done():
                    self.unfenced.set_result(None)
            return self._heartbeat_interval_ms
        if self.state is BrokerState.STARTING:
            # The broker has not caught up. The metadata may have been applied meanwhile; otherwise its arrival sends the next heartbeat.
            return 0 if self._metadata_offset() >= self.broker_epoch > sent_offset else self._heartbeat_interval_ms
        # Fenced although ready, for example after a pause of the process. It was caught up, so the next heartbeat follows soon.
        return RETRY_MS_MIN if self._ready else self._heartbeat_interval_ms

    async def _pause(self, delay_ms: int) -> None:
        """Wait for the delay, or until an event that must be reported to the controller."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        timer = self._world.clock.call_later(delay_ms, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()
