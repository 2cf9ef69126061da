"""Automatic creation of topics: of those that clients request (auto.create.topics.enable), of coordinators' internal topics, and of
those of Kafka Streams applications.

The controller decides and creates. This module sends one CreateTopics at a time for a name, however many clients request it.
Their requests wait until the topic is in the metadata, is rejected, or their timeout is over; nothing is polled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ottla.broker.cluster.channels import REQUEST_TIMEOUT_MS, ControllerChannel, request_for
from ottla.broker.configs import BrokerConfigs
from ottla.broker.metadata_cache import MetadataCache
from ottla.controller.metadata.image import MetadataDelta, MetadataImage
from ottla.controller.metadata.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.server.clock import TimerWheel
from ottla.server.network.context import RequestContext
from ottla.server.tasks import isolated
from ottla.server.world import World

log = logging.getLogger(__name__)

#: The controller takes its own num.partitions and default.replication.factor.
BY_DEFAULT = -1
PARTITIONS, FACTOR = "num.partitions", "default.replication.factor"

# topic -> (config of its partition count, of its replication factor, its topic configs)
_INTERNAL: dict[str, tuple[str, str, dict[str, str]]] = {
    GROUP_METADATA_TOPIC: (
        "offsets.topic.num.partitions",
        "offsets.topic.replication.factor",
        {"cleanup.policy": "compact", "segment.bytes": "{offsets.topic.segment.bytes}", "compression.type": "producer"},
    ),
    TRANSACTION_STATE_TOPIC: (
        "transaction.state.log.num.partitions",
        "transaction.state.log.replication.factor",
        {
            "cleanup.policy": "compact",
            "segment.bytes": "{transaction.state.log.segment.bytes}",
            "min.insync.replicas": "{transaction.state.log.min.isr}",
            "compression.type": "uncompressed",
            "unclean.leader.election.enable": "false",
        },
    ),
    SHARE_GROUP_STATE_TOPIC: (
        "share.coordinator.state.topic.num.partitions",
        "share.coordinator.state.topic.replication.factor",
        {
            "cleanup.policy": "delete",
            "segment.bytes": "{share.coordinator.state.topic.segment.bytes}",
            "min.insync.replicas": "{share.coordinator.state.topic.min.isr}",
            "compression.type": "producer",
            "retention.ms": "-1",
        },
    ),
}


def creatable(broker_configs: BrokerConfigs, topic: str) -> CreatableTopic:
    internal = _INTERNAL.get(topic)
    if internal is None:
        # The settings of the broker's own file come first, the controller's defaults after them (KAFKA-19655).
        is_set = broker_configs.node.set_names
        return CreatableTopic(
            name=topic,
            num_partitions=broker_configs[PARTITIONS] if PARTITIONS in is_set else BY_DEFAULT,
            replication_factor=broker_configs[FACTOR] if FACTOR in is_set else BY_DEFAULT,
        )
    partitions, replication_factor, configs = internal
    return CreatableTopic(
        name=topic,
        num_partitions=broker_configs[partitions],
        replication_factor=broker_configs[replication_factor],
        configs=[
            CreatableTopicConfig(name=name, value=str(broker_configs[value[1:-1]]) if value.startswith("{") else value)
            for name, value in configs.items()
        ],
    )


class TopicCreation:
    """Creates missing topics through the controller, and completes the requests that wait for them."""

    def __init__(
        self,
        world: World,
        configs: BrokerConfigs,
        metadata: MetadataCache,
        controller: ControllerChannel,
        wheel: TimerWheel,
    ) -> None:
        self._world = world
        self._configs = configs
        self._metadata = metadata
        self._controller = controller
        self._wheel = wheel
        self._in_flight: set[str] = set()
        #: Waiting requests by topic name.
        self._waiting: dict[str, dict[_Wait, None]] = {}

    def create(
        self, topics: Iterable[str], wait_ms: int, done: Callable[[], None], client: RequestContext | None = None
    ) -> Callable[[], None]:
        """Ask for the topics; `done` once they are in the image, refused, or `wait_ms` is over. Return a function that cancels it.

        `client`: whose request names them (KIP-590). The controller counts them in its mutation quota; internal topics have none.
        """
        wait = _Wait(self, dict.fromkeys(topics), done)
        for name in wait.names:
            self._waiting.setdefault(name, {})[wait] = None
        wait.slot = self._wheel.add(wait, wait_ms)
        new = wait.names.keys() - self._in_flight
        if new:
            self._in_flight |= new
            self._world.spawn(self._request(new, client), "create-topics")
        return wait.cancel

    def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A listener of the publisher."""
        if self._waiting:
            for topic in delta.changed_topics.values():
                self._ended(topic.name)

    def forget(self, wait: _Wait) -> None:
        self._wheel.remove(wait, wait.slot)
        for name in wait.names:
            waiting = self._waiting.get(name, {})
            waiting.pop(wait, None)
            if not waiting:
                self._waiting.pop(name, None)

    def _request_for(self, topics: set[str]) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[creatable(self._configs, topic) for topic in sorted(topics)], timeout_ms=REQUEST_TIMEOUT_MS
        )

    async def _request(self, topics: set[str], client: RequestContext | None) -> None:
        """Request the topics. Those that were created are still waited for: the controller's response may come before the metadata does."""
        created: set[str] = set()
        try:
            request = self._request_for(topics)
            if client is None:
                response = await self._controller.request(request)
            else:
                response = await request_for(
                    self._controller, ApiKey.CREATE_TOPICS, request, client, REQUEST_TIMEOUT_MS
                )
            for result in response.topics:
                if result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    created.add(result.name)
                else:
                    log.info("topic %s was not created: %s", result.name, result.error_message)
        except KafkaError as error:
            log.info("topics %s were not created: %s", ", ".join(sorted(topics)), error)
        finally:
            self._in_flight -= topics
            for name in sorted(topics - created):
                self._ended(name)

    def _ended(self, name: str) -> None:
        """The topic is there, or will not be."""
        for wait in list(self._waiting.get(name, ())):
            isolated(wait.ended, name)


class _Wait:
    """One request that waits for topics."""

    __slots__ = ("_creation", "_done", "_left", "names", "slot")

    def __init__(self, creation: TopicCreation, names: dict[str, None], done: Callable[[], None]) -> None:
        self._creation = creation
        self._done = done
        self._left = set(names)
        self.names = names
        self.slot = -1

    def ended(self, name: str) -> None:
        self._left.discard(name)
        if not self._left:
            self.expire()

    def expire(self) -> None:
        self.cancel()
        self._done()

    def cancel(self) -> None:
        self._creation.forget(self)


#: Kafka keeps as many.
ERRORS_MAX = 1_000


class _Failure(NamedTuple):
    message: str
    until_ms: int


class StreamsTopics:
    """Internal topics of Kafka Streams applications: created when a heartbeat finds that they are missing (KIP-1071).

    A heartbeat does not wait for them. The next ones find the topics, or the reason why they were not created, which is kept for two
    intervals of heartbeats: until then the controller is not asked again.
    """

    def __init__(self, world: World, controller: ControllerChannel) -> None:
        self._world = world
        self._controller = controller
        self._in_flight: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Mapping[str, CreatableTopic], keep_errors_ms: int, client: RequestContext) -> None:
        """Request, in the name of the member's client, the topics that are neither requested already nor have just failed."""
        now_ms = self._world.clock.mono_ms()
        new = [
            topic
            for name, topic in topics.items()
            if name not in self._in_flight and not self._has_failed(name, now_ms)
        ]
        if new:
            self._in_flight.update(topic.name for topic in new)
            self._world.spawn(self._request(new, keep_errors_ms, client), "create-streams-topics")

    def errors(self, names: Iterable[str]) -> dict[str, str]:
        """Return why topics were not created, by their names."""
        now_ms = self._world.clock.mono_ms()
        return {name: self._failures[name].message for name in names if self._has_failed(name, now_ms)}

    def _has_failed(self, name: str, now_ms: int) -> bool:
        failure = self._failures.get(name)
        return failure is not None and now_ms < failure.until_ms

    async def _request(self, topics: list[CreatableTopic], keep_errors_ms: int, client: RequestContext) -> None:
        failed: dict[str, str] = {}
        try:
            request = CreateTopicsRequest(topics=topics, timeout_ms=REQUEST_TIMEOUT_MS)
            response = await request_for(self._controller, ApiKey.CREATE_TOPICS, request, client, REQUEST_TIMEOUT_MS)
            for result in response.topics:
                if result.error_code:
                    failed[result.name] = result.error_message or ErrorCode(result.error_code).message
        except KafkaError as error:
            failed = {topic.name: str(error) for topic in topics}
        finally:
            self._in_flight.difference_update(topic.name for topic in topics)
        if failed:
            log.info(
                "%d internal topics of a streams group were not created: %s", len(failed), next(iter(failed.values()))
            )
            self._keep(failed, keep_errors_ms)

    def _keep(self, failed: Mapping[str, str], keep_errors_ms: int) -> None:
        now_ms = self._world.clock.mono_ms()
        kept = {name: failure for name, failure in self._failures.items() if now_ms < failure.until_ms}
        kept |= {name: _Failure(message, now_ms + keep_errors_ms) for name, message in failed.items()}
        self._failures = dict(list(kept.items())[-ERRORS_MAX:])
