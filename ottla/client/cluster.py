"""Connections to a cluster as a client has them: bootstrap, metadata, leaders, coordinators.

Requests that any broker can take go to the first that responds. Errors that pass (no leader yet, coordinator loading)
are retried until the command's own time limit ends it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from ottla.client.errors import NO_SUCH_TOPIC, ClusterError, check, code_of, failure, passes
from ottla.client.failures import Kind
from ottla.client.partitions import LeaderTable
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError, UnsupportedVersion
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from ottla.protocol.releases import COMMAND_SOFTWARE
from ottla.server.address import Address, NoAddress, parse_addresses
from ottla.server.network.client import Channel
from ottla.server.network.peer_security import PLAINTEXT, PeerSecurity
from ottla.server.network.wire import ChannelClosed, RequestTimeout
from ottla.server.world import World

T = TypeVar("T")

DEFAULT_PORT = 9092
CLIENT_ID = "ottla"
RETRY_BACKOFF_MS = 100
#: A broker creates a topic that a producer asks for within this time, or does not do so (auto.create.topics.enable).
AUTO_CREATE_MS_MAX = 3_000
#: How long a client waits for a response that another broker could give as well. A broker that is paused, or cut off from the
#: others, must not use up a command's whole time limit, unless no other broker is known.
ATTEMPT_MS_MAX = 5_000
#: A text that cannot be sent is quoted up to this length.
NAMED_CHARS_MAX = 80
GROUP_KEY_TYPE = 0
TRANSACTION_KEY_TYPE = 1
KINDS = {GROUP_KEY_TYPE: "group", TRANSACTION_KEY_TYPE: "transactional id"}


class Lost(NamedTuple):
    """A channel that was lost: why, the security that the client expected of the listener, and whether the broker had answered
    before.
    """

    fault: ChannelClosed
    security: PeerSecurity
    answered: bool


class BrokerTooOld(ClusterError):
    """A field is set that is missing in the newest version of the request that the broker has."""


class NoConnection(ClusterError):
    """The required broker, or every broker, cannot be reached, or has not answered in time.

    `lost` says how channels were lost, with the client's own security and whether that broker had answered before; `doing` says
    what the client waited for when time was up.
    """

    def __init__(self, cause: str, kind: Kind = Kind.FAILED, *, lost: Sequence[Lost] = (), doing: str = "") -> None:
        super().__init__(cause, kind=kind)
        self.lost = lost
        self.doing = doing


class ClusterClient:
    """One command's view of the cluster. Requests that have a timeout field get `timeout_ms`."""

    def __init__(
        self,
        world: World,
        bootstrap: Sequence[Address],
        timeout_ms: int,
        security: PeerSecurity = PLAINTEXT,
        client_id: str = CLIENT_ID,
    ) -> None:
        self.world = world
        self.security = security
        self._client_id = client_id
        self.bootstrap = list(bootstrap)
        self.timeout_ms = timeout_ms
        self.brokers: dict[int, Address] = {}
        self.id: str | None = None
        self._channels: dict[Address, Channel] = {}
        self._answered: set[Address] = set()
        # The step in progress, for the message of a timeout.
        self.doing = "connecting"

    async def close(self) -> None:
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def limit(self, more_ms: int = 0) -> asyncio.Timeout:
        """Return the command's time limit. A command that runs until it is interrupted applies it to its finite parts only.

        `more_ms` is added for a request that may itself wait so long.
        """
        return asyncio.timeout((self.timeout_ms + more_ms) / 1000)

    async def request(
        self, request: object, node: int | None = None, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send to the broker `node`, or to any. After a lost connection it is sent once more.

        `timeout_ms` None means the command's time limit. With a shorter one, a request to any broker goes on to the next broker
        when the time is over.

        Raises:
            NoConnection: the broker, or every broker, cannot be reached or does not answer.
        """
        if node is None:
            return await self._request_any(request, version, timeout_ms)
        address = self.brokers.get(node)
        if address is None:
            await self.metadata([])
            address = self.brokers.get(node)
            if address is None:
                raise NoConnection(f"broker {node} is not in the cluster", kind=Kind.BROKER_GONE)
        return await self._request_at(address, request, version, timeout_ms)

    async def metadata(
        self, topics: Sequence[str] | None, node: int | None = None, *, create: bool = False
    ) -> MetadataResponse:
        """Return the metadata of the named topics; None means all topics.

        It refreshes the addresses of brokers and the cluster's id.

        `create`: topics that do not exist are created if the broker has auto.create.topics.enable.
        """
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        )
        is_alone = node is None and max(len(self.bootstrap), len(self.brokers)) == 1
        attempt_ms = None if is_alone else min(self.timeout_ms, ATTEMPT_MS_MAX)
        response: MetadataResponse = await self.request(request, node, timeout_ms=attempt_ms)
        self.brokers = {broker.node_id: Address(broker.host, broker.port) for broker in response.brokers}
        self.id = response.cluster_id
        return response

    async def topic(self, name: str, *, create: bool = False) -> MetadataResponseTopic:
        """Return a topic; its partitions may be without a leader. If there is no such topic, the failure suggests names.

        `create`: wait for a topic that the broker creates by itself, as stock producers do.
        """
        patience_ms = AUTO_CREATE_MS_MAX if create else 0
        began_ms = self.world.clock.mono_ms()

        async def ask() -> tuple[MetadataResponseTopic, int]:
            topic = (await self.metadata([name], create=create)).topics[0]
            return topic, topic.error_code

        self.doing = f"looking for topic {name}"
        while True:
            topic, code = await self.retry(ask)
            missing = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if not missing or self.world.clock.mono_ms() - began_ms >= patience_ms:
                break
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
        if code:
            raise failure(f"topic {name}", code, name=name, known=await self.topic_names() if missing else ())
        return topic

    async def partitions(self, name: str) -> list[int]:
        """Return the partitions of a topic."""
        return sorted(part.partition_index for part in (await self.topic(name)).partitions)

    async def topic_names(self) -> list[str]:
        return sorted(topic.name or "" for topic in (await self.metadata(None)).topics)

    async def coordinator(self, key: str, key_type: int = GROUP_KEY_TYPE) -> int:
        """Return the broker that coordinates the group or transactional id."""
        what = f"coordinator of {KINDS[key_type]} {key}"

        async def ask() -> tuple[Coordinator, int]:
            found = await self.request(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
            return found.coordinators[0], found.coordinators[0].error_code

        self.doing = f"looking for the {what}"
        found, code = await self.retry(ask)
        check(what, code, found.error_message)
        self.brokers[found.node_id] = Address(found.host, found.port)
        return found.node_id

    async def retry(self, ask: Callable[[], Awaitable[tuple[T, int]]]) -> tuple[T, int]:
        """Repeat `ask` while its error is retriable; the command's timeout ends it."""
        while True:
            response, code = await ask()
            if not passes(code):
                return response, code
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)

    async def _request_any(self, request: object, version: int | None, timeout_ms: int | None) -> Any:
        lost: list[NoConnection] = []
        for address in dict.fromkeys([*self._channels, *self.brokers.values(), *self.bootstrap]):
            try:
                return await self._request_at(address, request, version, timeout_ms)
            except NoConnection as fault:
                # A request without its own time limit has used up the command's time. It may have been carried out, so it is
                # not repeated.
                if fault.kind is Kind.TIMED_OUT and timeout_ms is None:
                    raise
                lost.append(fault)
        all_lost = [each for fault in lost for each in fault.lost]
        raise NoConnection("; ".join(fault.cause for fault in lost), Kind.NO_BROKER_ANSWERS, lost=all_lost)

    async def _request_at(
        self, address: Address, request: object, version: int | None, timeout_ms: int | None = None
    ) -> Any:
        host, port = address
        limit_ms = self.timeout_ms if timeout_ms is None else timeout_ms
        for attempt in range(2):  # a broker that restarted has closed the kept channel
            channel = self._channels.get(address)
            if channel is None:
                channel = self._channels[address] = Channel(
                    self.world, host, port, self._client_id, self.security, COMMAND_SOFTWARE
                )
                attempt = 1
            try:
                response = await channel.request(request, version=version, timeout_ms=limit_ms)
            except RequestTimeout as fault:
                self._give_up(address, channel)
                raise NoConnection(str(fault), Kind.TIMED_OUT, doing=self.doing) from None
            except ChannelClosed as fault:
                self._give_up(address, channel)
                if attempt:
                    lost = Lost(fault, self.security, address in self._answered)
                    raise NoConnection(str(fault), lost=[lost]) from None
            except KafkaError as fault:
                raise failure(f"broker {host}:{port}", fault.code, fault.message) from None
            except UnsupportedVersion as fault:
                raise BrokerTooOld(f"broker {host}:{port} is too old for this command: {fault}") from None
            except (ProtocolError, UnicodeEncodeError, struct.error) as fault:
                raise ClusterError(_why_not_sent(request, fault), kind=Kind.WRONG) from None
            else:
                self._answered.add(address)
                return response
        raise AssertionError("the second attempt returns or raises")

    def _give_up(self, address: Address, channel: Channel) -> None:
        """Close a channel that was lost.

        If several requests were on it, the first has closed it already, and there may be a new channel.
        """
        if self._channels.get(address) is channel:
            del self._channels[address]
        channel.close()


def _why_not_sent(request: object, fault: Exception) -> str:
    """Return why a request cannot be encoded: a person has typed a number or a text that does not fit into a field."""
    if isinstance(fault, UnicodeEncodeError):
        return f"{fault.object[:NAMED_CHARS_MAX]!r} has bytes that are not UTF-8"
    what = "a number is out of range: " if isinstance(fault, struct.error) else ""
    return f"{type(request).__name__} cannot be sent: {what}{fault}"


class Leaders(LeaderTable):
    """The leaders of the partitions of `topics`: the brokers that requests about them go to."""

    def __init__(self, cluster: ClusterClient, topics: Iterable[str], *, all_exist: bool = True) -> None:
        """Begin without any leader.

        With `all_exist` False topics may come and go: a missing one has no leader, and the others are not affected.
        """
        super().__init__()
        self.topics = list(dict.fromkeys(topics))
        self._cluster = cluster
        self._all_exist = all_exist
        self._turn = 0

    async def start(self, *, create: bool = False) -> None:
        """Look all topics up.

        Raises:
            ClusterError: a topic does not exist, or the user may not describe it.
        """
        for name in self.topics:
            self.take(await self._cluster.topic(name, create=create))

    @property
    def known(self) -> bool:
        """Return whether all topics that must exist have been looked up."""
        return not self._all_exist or all(self.current_id(topic) is not None for topic in self.topics)

    async def refresh(self, avoid: int | None = None) -> None:
        """Ask the next broker for the leaders. `avoid` is the node that has just failed: it may not know of a newer leader yet.

        Raises:
            NoConnection: no broker can be reached.
            ClusterError: a topic is gone, or may not be described any more.
        """
        nodes = [node for node in sorted(self._cluster.brokers) if node != avoid]
        self._turn += 1
        try:
            node = nodes[self._turn % len(nodes)] if nodes else None
            response = await self._cluster.metadata(self.topics, node)
        except NoConnection:
            response = await self._cluster.metadata(self.topics)
        for topic in response.topics:
            # A broker that has just started may not have the topic in its metadata yet.
            if topic.error_code in NO_SUCH_TOPIC or (topic.error_code and not self._all_exist):
                continue
            check(f"topic {topic.name}", topic.error_code)
            self.take(topic)


def parse_bootstrap(text: str) -> list[Address]:
    """Return the addresses of "host:port,host:port"; a port may be left out.

    Raises:
        ClusterError: there is none, or one has another form.
    """
    try:
        found = parse_addresses(text, DEFAULT_PORT)
    except NoAddress as fault:
        raise ClusterError(f"bootstrap servers: {fault}", kind=Kind.NOT_HOST_PORT) from None
    if not found:
        raise ClusterError(f"bootstrap servers {text!r} name no address", kind=Kind.NO_ADDRESS)
    return found


async def ask_coordinator(
    cluster: ClusterClient, group: str, request: object, timeout_ms: int, patience_ms: int | None = None
) -> tuple[Any, int]:
    """Return the response of the group's coordinator and its error code, which is not a retriable one.

    The times are those of `until_answered`.
    """

    async def ask() -> tuple[Any, int]:
        node = await cluster.coordinator(group)
        response = await cluster.request(request, node, timeout_ms=timeout_ms)
        return response, response.error_code

    return await until_answered(cluster, ask, timeout_ms, patience_ms)


async def ask_about_group(
    cluster: ClusterClient,
    group: str,
    request: object,
    doing: str,
    entry: Callable[[Any], Any] = lambda response: response,
    *,
    version: int | None = None,
) -> Any:
    """Return the group's entry in the response of its coordinator, with its error code, unless that code passes by itself.

    A coordinator that has moved is looked for, and one that still loads its log is waited for, until the command's time is up.
    """

    async def ask() -> tuple[Any, int]:
        node = await cluster.coordinator(group)
        cluster.doing = doing
        found = entry(await cluster.request(request, node, version=version))
        return found, found.error_code

    found, _ = await cluster.retry(ask)
    return found


def first_group(response: Any) -> Any:
    """Return the entry of a response about one group."""
    return response.groups[0]


async def until_answered(
    cluster: ClusterClient,
    ask: Callable[[], Awaitable[tuple[Any, int]]],
    timeout_ms: int = ATTEMPT_MS_MAX,
    patience_ms: int | None = None,
) -> tuple[Any, int]:
    """Repeat `ask` while its error is retriable.

    The limit is `patience_ms`, or else the command's time limit, and the request's own `timeout_ms` is added.
    """
    limit_ms = cluster.timeout_ms if patience_ms is None else patience_ms
    async with asyncio.timeout((limit_ms + timeout_ms) / 1000):
        while True:
            try:
                response, code = await ask()
            except NoConnection:
                code = ErrorCode.NETWORK_EXCEPTION
            if not code_of(code).retriable:
                return response, code
            await asyncio.sleep(RETRY_BACKOFF_MS / 1000)
