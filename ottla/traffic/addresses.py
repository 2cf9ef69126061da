"""Addresses of brokers in responses: the messages that have them, and how they are replaced by addresses of the proxy.

Clients connect to the addresses in these responses. An address that is not replaced would lead them past the proxy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.errors import ProtocolError
from ottla.protocol.primitives import Buffer
from ottla.server.address import Address
from ottla.traffic.messages import FrameMessage, read_response_message


def _brokers(message: Any, version: int) -> Iterable[Any]:
    brokers: Iterable[Any] = message.brokers
    return brokers


def _coordinators(message: Any, version: int) -> Iterable[Any]:
    return message.coordinators if version >= 4 else (message,)


def _node_endpoints(message: Any, version: int) -> Iterable[Any]:
    endpoints: Iterable[Any] = message.node_endpoints
    return endpoints


#: API, the first version with addresses, and the objects with a host and a port. In Produce and Fetch they are addresses of a
#: new leader (KIP-951).
ADDRESSED: dict[int, tuple[int, Callable[[Any, int], Iterable[Any]]]] = {
    ApiKey.METADATA: (0, _brokers),
    ApiKey.FIND_COORDINATOR: (0, _coordinators),
    ApiKey.DESCRIBE_CLUSTER: (0, _brokers),
    ApiKey.PRODUCE: (10, _node_endpoints),
    ApiKey.FETCH: (16, _node_endpoints),
    ApiKey.SHARE_FETCH: (0, _node_endpoints),
    ApiKey.SHARE_ACKNOWLEDGE: (0, _node_endpoints),
}


class AdvertisedBroker(NamedTuple):
    """An address in a response, with the node id of its broker."""

    address: Address
    node_id: int


class AddressedResponse:
    """A response with addresses."""

    def __init__(self, message: FrameMessage, holders: list[Any]) -> None:
        self._message = message
        self._holders = holders

    @property
    def advertised(self) -> list[AdvertisedBroker]:
        return [AdvertisedBroker(Address(each.host, each.port), _node_id(each)) for each in self._holders]

    def rewritten(self, frame: Buffer, places: Mapping[Address, Address]) -> bytes:
        """Return the response with its addresses replaced by those of `places`."""
        for each in self._holders:
            each.host, each.port = places.get(Address(each.host, each.port), (each.host, each.port))
        return self._message.encoded(frame)


def has_addresses(api_key: int, version: int) -> bool:
    """Return whether responses of this API and version can have addresses."""
    row = ADDRESSED.get(api_key)
    return row is not None and version >= row[0]


def addressed_response(api_key: int, version: int, frame: Buffer) -> AddressedResponse | None:
    """Return the response if it has addresses, or None if it has none or cannot be read."""
    try:
        message = read_response_message(api_key, version, frame)
    except ProtocolError:
        return None
    holders = [each for each in ADDRESSED[api_key][1](message.body, version) if each.host and each.port > 0]
    return AddressedResponse(message, holders) if holders else None


def bounded_versions(version: int, frame: Buffer) -> Buffer:
    """Return a response to ApiVersions in which no API with addresses has a version that our codecs lack.

    If there is no such version, as with every Kafka up to 4.4, the bytes stay as they are.
    """
    try:
        message = read_response_message(ApiKey.API_VERSIONS, version, frame)
    except ProtocolError:
        return frame
    newer = [
        row
        for row in message.body.api_keys
        if row.api_key in ADDRESSED and row.max_version > APIS[ApiKey(row.api_key)].max_version
    ]
    for row in newer:
        row.max_version = APIS[ApiKey(row.api_key)].max_version
    return message.encoded(frame) if newer else frame


def _node_id(holder: Any) -> int:
    found: int = holder.broker_id if hasattr(holder, "broker_id") else holder.node_id
    return found
