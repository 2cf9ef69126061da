"""Topics that come into being by being mentioned: by clients (auto.create.topics.enable) and by coordinators.

The controller decides and creates; this file says with which settings it is asked, and sees to it that a name is asked for
once at a time, however many clients mention it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from broker.configs import BrokerConfigs
from broker.controller_channel import ControllerChannel
from broker.metadata_cache import MetadataCache
from broker.topic_names import GROUP_METADATA_TOPIC, SHARE_GROUP_STATE_TOPIC, TRANSACTION_STATE_TOPIC
from protocol.errors import ErrorCode, KafkaError
from protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from server.world import World

log = logging.getLogger(__name__)

#: num.partitions and default.replication.factor are the controller's to fill in.
BY_DEFAULT = -1
REQUEST_TIMEOUT_MS = 30_000
#: How often the image is looked at for topics that were asked for: their creation arrives by the metadata log.
LOOK_AGAIN_MS = 2

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
        return CreatableTopic(name=topic, num_partitions=BY_DEFAULT, replication_factor=BY_DEFAULT)
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
    """See the module."""

    def __init__(
        self, world: World, configs: BrokerConfigs, metadata: MetadataCache, controller: ControllerChannel
    ) -> None:
        self._world = world
        self._configs = configs
        self._metadata = metadata
        self._controller = controller
        self._in_flight: set[str] = set()

    def create(self, topics: Iterable[str], wait_ms: int, done: Callable[[], None]) -> Callable[[], None]:
        """Ask for the topics; `done` once they are in the image, refused, or `wait_ms` is over. Returns what cancels it."""
        wanted = set(topics)
        new = wanted - self._in_flight
        if new:
            self._in_flight |= new
            self._world.spawn(self._request(new), "create-topics")
        return _Watch(self._world, wanted, self._in_flight, self._metadata, wait_ms, done).cancel

    async def create_and_wait(self, topic: str) -> None:
        """For coordinators: until the controller has answered. Raises its refusal."""
        if topic in self._metadata.image.topics:
            return
        response = await self._controller.request(self._request_for({topic}))
        for result in response.topics:
            if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                raise KafkaError(ErrorCode(result.error_code), result.error_message)

    def _request_for(self, topics: set[str]) -> CreateTopicsRequest:
        return CreateTopicsRequest(
            topics=[creatable(self._configs, topic) for topic in sorted(topics)], timeout_ms=REQUEST_TIMEOUT_MS
        )

    async def _request(self, topics: set[str]) -> None:
        try:
            response = await self._controller.request(self._request_for(topics))
            for result in response.topics:
                if result.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    log.info("topic %s was not created: %s", result.name, result.error_message)
        except KafkaError as error:
            log.info("topics %s were not created: %s", ", ".join(sorted(topics)), error)
        finally:
            self._in_flight -= topics


class _Watch:
    """Looks at the image until the topics are there or nobody is creating them any more."""

    def __init__(
        self,
        world: World,
        wanted: set[str],
        in_flight: set[str],
        metadata: MetadataCache,
        wait_ms: int,
        done: Callable[[], None],
    ) -> None:
        self._world = world
        self._wanted = wanted
        self._in_flight = in_flight
        self._metadata = metadata
        self._deadline_ms = world.clock.mono_ms() + wait_ms
        self._done: Callable[[], None] | None = done
        self._look_later()

    def _look_later(self) -> None:
        self._world.clock.call_later(LOOK_AGAIN_MS, self._look)

    def _look(self) -> None:
        done = self._done
        if done is None:
            return
        topics = self._metadata.image.topics
        waiting = [name for name in self._wanted if name not in topics and name in self._in_flight]
        if waiting and self._world.clock.mono_ms() < self._deadline_ms:
            self._look_later()
            return
        self._done = None
        done()

    def cancel(self) -> None:
        self._done = None
