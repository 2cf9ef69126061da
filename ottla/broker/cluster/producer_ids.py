"""Producer ids for idempotent producers: the controller gives blocks, and this broker hands out their ids one by one.

A block is asked for when there is none, and the next one already when 90 % of the current one are used (Kafka's share), so
that no request waits. A block of this process is never allocated to another: a restart drops the rest of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from ottla.broker.cluster.channels import ControllerChannel
from ottla.broker.cluster.lifecycle import BrokerLifecycle
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.server.world import World

log = logging.getLogger(__name__)

PREFETCH_SHARE = 0.9
#: Each waiter is one client's connection, on which later requests wait, too.
WAITERS_MAX = 10_000

Receive = Callable[[int, ErrorCode], None]


class ProducerIds:
    def __init__(self, world: World, node_id: int, controller: ControllerChannel, lifecycle: BrokerLifecycle) -> None:
        self._world = world
        self._node_id = node_id
        self._controller = controller
        self._lifecycle = lifecycle
        self._next = 0
        self._end = 0
        self._prefetch_at = 0
        self._reserve: tuple[int, int] | None = None
        self._asking = False
        self._waiters: deque[Receive] = deque()

    def take(self, receive: Receive) -> None:
        """Call `receive(producer_id, error)`, at once if there is a block."""
        if self._next >= self._end and self._reserve is not None:
            self._begin_block(*self._reserve)
            self._reserve = None
        if self._next < self._end:
            producer_id = self._next
            self._next += 1
            if self._next >= self._prefetch_at and self._reserve is None:
                self._ask()
            receive(producer_id, ErrorCode.NONE)
        elif len(self._waiters) >= WAITERS_MAX:
            receive(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            self._waiters.append(receive)
            self._ask()

    def _begin_block(self, start: int, length: int) -> None:
        self._next, self._end = start, start + length
        self._prefetch_at = start + int(length * PREFETCH_SHARE)

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._world.spawn(self._fetch_block(), "allocate-producer-ids")

    async def _fetch_block(self) -> None:
        error = ErrorCode.NONE
        try:
            response = await self._controller.request(
                AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._lifecycle.broker_epoch)
            )
            error = ErrorCode(response.error_code)
            if not error:
                self._reserve = (response.producer_id_start, response.producer_id_len)
        except KafkaError as failure:
            error = failure.code
        finally:
            self._asking = False
        waiters, self._waiters = self._waiters, deque()
        if error:
            log.info("no producer ids from the controller: %s", error.name)
        for receive in waiters:
            if error:
                # Kafka's clients retry InitProducerId by themselves after this error, whatever the cause was.
                receive(-1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            else:
                self.take(receive)
