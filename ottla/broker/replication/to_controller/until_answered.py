"""Requests to the controller that are retried until there is a response: bounded, and one at a time.

A newer value of a key replaces the pending one. The caller handles errors in the response.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from itertools import islice
from typing import Any, Generic, TypeVar

from ottla.broker.cluster.controller_channel import ControllerChannel
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.server.clock import pause
from ottla.server.world import World

log = logging.getLogger(__name__)

REQUEST_TIMEOUT_MS = 10_000
#: The active controller decides a request in one turn of its event loop, so this is its own limit of a turn
#: (controller/decisions/unsettled.py). Kafka sends 2,250 directories, and all ISRs at once.
PARTITIONS_A_REQUEST = 400

Key = TypeVar("Key")
Value = TypeVar("Value")


class UntilAnswered(Generic[Key, Value]):
    def __init__(
        self,
        world: World,
        controller: ControllerChannel,
        api: str,
        ask: Callable[[dict[Key, Value]], Awaitable[Iterable[Key]]],
        *,
        retry_ms: int,
        asked_max: int = PARTITIONS_A_REQUEST,
    ) -> None:
        """Takes `ask`, which returns the values to retry after `retry_ms`."""
        self._world = world
        self._controller = controller
        self._api = api
        self._ask = ask
        self._retry_ms = retry_ms
        self._asked_max = asked_max
        self._waiting: dict[Key, Value] = {}
        self._running = self._closed = False

    def enqueue(self, key: Key, value: Value) -> None:
        self._waiting[key] = value
        if not self._running and not self._closed:
            self._running = True
            self._world.spawn(self._run(), self._api)

    def close(self) -> None:
        self._closed = True
        self._waiting.clear()

    async def answer(self, request: object) -> Any:
        """Sends a request; returns None if there is no response, or one with a top-level error."""
        try:
            response = await self._controller.request(request, timeout_ms=REQUEST_TIMEOUT_MS)
        except KafkaError as error:
            log.warning("%s was not answered: %s", self._api, error)
            return None
        if response.error_code != ErrorCode.NONE:
            log.info("%s was answered %s", self._api, ErrorCode(response.error_code).name)
            return None
        return response

    async def _run(self) -> None:
        try:
            while self._waiting and not self._closed:
                asked = dict(islice(self._waiting.items(), self._asked_max))
                for key in asked:
                    del self._waiting[key]
                try:
                    again = list(await self._ask(asked))
                except Exception:
                    # After an unexpected exception the values must be retried: a proposed ISR must not stay unsent.
                    log.exception("%s: the answer could not be handled, so it is asked again", self._api)
                    again = list(asked)
                if again and not self._closed:
                    await pause(self._world.clock, self._retry_ms)
                    for key in again:
                        self._waiting.setdefault(key, asked[key])
        finally:
            self._running = False
