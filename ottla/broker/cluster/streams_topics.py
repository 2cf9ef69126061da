"""Internal topics of Kafka Streams applications: created by the controller when a heartbeat finds that they are missing (KIP-1071).

A heartbeat does not wait for them. The next ones find the topics, or the reason why they were not created, which is kept for two
intervals of heartbeats: until then the controller is not asked again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.broker.cluster.forwarding import Requests, request_for
from ottla.protocol.api import ApiKey
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.server.network.context import RequestContext
from ottla.server.world import World

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 30_000
#: As many as Kafka keeps.
ERRORS_MAX = 1_000


class _Failure(NamedTuple):
    message: str
    until_ms: int


class StreamsTopics:
    """Creates missing internal topics, and keeps the errors of those that the controller did not create."""

    def __init__(self, world: World, controller: Requests) -> None:
        self._world = world
        self._controller = controller
        self._in_flight: set[str] = set()
        self._failures: dict[str, _Failure] = {}

    def create(self, topics: Mapping[str, CreatableTopic], keep_errors_ms: int, client: RequestContext) -> None:
        """Ask for those that are not asked for already, and did not fail just now; in the name of the member's client."""
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
        """Why topics were not created, by their names."""
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
