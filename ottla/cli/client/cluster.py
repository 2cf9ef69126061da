"""Connections to a cluster as a client has them: bootstrap, metadata, leaders, coordinators.

Requests that any broker can take go to the first that responds. Errors that pass (no leader yet, coordinator loading)
are retried until the command's own time limit ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from ottla.cli.client.failures import check, code_of, failure
from ottla.cli.errors import TIMED_OUT, USAGE, CommandFailed
from ottla.protocol.errors import ErrorCode, KafkaError
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.server.network.channel_protocol import ChannelClosed, RequestTimeout
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.world import World

T = TypeVar("T")

DEFAULT_PORT = 9092
Address = tuple[str, int]
CLIENT_ID = "ottla"
RETRY_BACKOFF_MS = 100
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
KINDS = {GROUP_KEY_TYPE: "group", TRANSACTION_KEY_TYPE: "transactional id"}


class NoConnection(CommandFailed):
    """The required broker, or every broker, cannot be reached."""


class ClusterClient:
    """One command's view of the cluster. `timeout_ms` goes into requests that have one."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[Address],
        timeout_ms: int,
        security: PeerSecurity = PLAINTEXT,
        client_id: str = CLIENT_ID,
    ) -> None:
        self.world = world
        self._security = security
        self._client_id = client_id
        self.bootstrap = list(bootstrap)
        self.timeout_ms = timeout_ms
        self.brokers: dict[int, Address] = {}
        self._channels: dict[Address, Channel] = {}
        # The step in progress, for the message of a timeout.
        self.doing = "connecting"

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def limit(self) -> asyncio.Timeout:
        """Returns the command's time limit. A command that runs until it is interrupted applies it to its finite parts only."""
        return asyncio.timeout(self.timeout_ms / 1000)

    async def request(self, request: object, node: int | None = None, *, version: int | None = None) -> Any:
        """Send to the broker `node`, or to any. After a lost connection it retries once."""
        if node is None:
            return await self._request_any(request, version)
        address = self.brokers.get(node)
        if address is None:
            await self.metadata([])
            address = self.brokers.get(node)
            if address is None:
                raise CommandFailed(f"broker {node} is not in the cluster", "`ottla cluster info` shows who is")
        return await self._request_at(address, request, version)

    async def metadata(self, topics: Sequence[str] | None) -> MetadataResponse:
        """Metadata of the named topics, of all for None; also refreshes the addresses of brokers."""
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = await self.request(request)
        self.brokers = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        return response

    async def topic(self, name: str) -> MetadataResponseTopic:
        """Return a topic once its partitions have leaders; if there is no such topic, the failure suggests names."""

        async def ask() -> tuple[MetadataResponseTopic, int]:
            topic = (await self.metadata([name])).topics[0]
            return topic, topic.error_code or max((part.error_code for part in topic.partitions), default=0)

        self.doing = f"looking for the leaders of topic {name}"
        topic, code = await self.retry(ask)
        if topic.error_code:
            raise failure(f"topic {name}", code, name=name, known=await self.topic_names())
        return topic

    async def topic_names(self) -> list[str]:
        return sorted(topic.name or "" for topic in (await self.metadata(None)).topics)

    async def leaders(self, name: str) -> dict[int, int]:
        """Return partition -> leader."""
        return {part.partition_index: part.leader_id for part in (await self.topic(name)).partitions}

    async def coordinator(self, key: str, key_type: int = GROUP_KEY_TYPE) -> int:
        """Return the broker that coordinates the group or transactional id."""
        what = f"coordinator of {KINDS[key_type]} {key}"

        async def ask() -> tuple[Coordinator, int]:
            found = await self.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
            return found.coordinators[0], found.coordinators[0].error_code

        self.doing = f"looking for the {what}"
        found, code = await self.retry(ask)
        check(what, code, found.error_message)
        self.brokers[found.node_id] = (found.host, found.port)
        return found.node_id

    async def retry(self, ask: Callable[[], Awaitable[tuple[T, int]]]) -> tuple[T, int]:
        """Repeat `ask` while its error is retriable; the command's timeout ends it."""
        while True:
            response, code = await ask()
            known = code_of(code)
            # Retriable for clients that wait for a topic to be created; a command wants to say that there is none.
            if not known.retriable or known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return response, code
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    async def _request_any(self, request: object, version: int | None) -> Any:
        lost: list[str] = []
        for address in dict.fromkeys([*self._channels, *self.brokers.values(), *self.bootstrap]):
            try:
                return await self._request_at(address, request, version)
            except NoConnection as fault:
                lost.append(fault.cause)
        raise NoConnection("; ".join(lost), "is a broker running there? `ottla dev` starts a cluster to try things on")

    async def _request_at(self, address: Address, request: object, version: int | None) -> Any:
        host, port = address
        for attempt in range(2):  # a broker that restarted has closed the channel that we kept
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = Channel(self.world, host, port, self._client_id, self._security)
                attempt = 1
            try:
                return await channel.request(request, version=version, timeout_ms=self.timeout_ms)
            except RequestTimeout as fault:
                raise CommandFailed(str(fault), f"while {self.doing}", TIMED_OUT) from None
            except ChannelClosed as fault:
                del self._channels[address]
                channel.close()
                if attempt:
                    raise NoConnection(str(fault), "is a broker running there?") from None
            except KafkaError as fault:
                raise failure(f"broker {host}:{port}", fault.code, fault.message) from None
        raise AssertionError("the second attempt returns or raises")


def parse_bootstrap(text: str) -> list[Address]:
    """Return the addresses of "host:port,host:port"; a port may be left out, IPv6 hosts stand in brackets."""
    found = [_parse_one(part.strip()) for part in text.split(",") if part.strip()]
    if not found:
        raise CommandFailed(f"bootstrap servers {text!r} name no address", "write -b HOST:PORT", USAGE)
    return found


def _parse_one(part: str) -> Address:
    # The form of Kafka's listeners is understood too: PLAINTEXT://host:port.
    scheme, _, rest = part.rpartition("://")
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536 or scheme not in ("", "PLAINTEXT"):
        raise CommandFailed(f"bootstrap server {part!r} is not HOST:PORT", "for example -b localhost:9092", USAGE)
    return host, int(port)
