"""Envelope: a broker forwards a client's request with the client's principal (KIP-590).

The inner request is authorized for that client and dispatched like a direct one, and its response is wrapped. Only brokers
of the cluster may send an Envelope (ClusterAction), because the principal in it is trusted. NOT_CONTROLLER in the inner
response becomes NOT_CONTROLLER of the Envelope, so that the broker finds the active controller and retries.
"""

from __future__ import annotations

import inspect
import ipaddress
import logging
from functools import partial
from typing import Any

from ottla.controller.handlers.components import ControllerComponents
from ottla.protocol.api import ApiKey, decode_request_header
from ottla.protocol.compile import decoder
from ottla.protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla.protocol.internal_topics.control_messages import DefaultPrincipalData
from ottla.protocol.messages.describe_quorum import DescribeQuorumResponse
from ottla.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from ottla.server.authorization.operations import CLUSTER_ACTION
from ottla.server.network.context import Answer, Peer, Reply, RequestContext
from ottla.server.network.error_reply import error_reply
from ottla.server.network.route import Route, RouteTable, VersionCodec
from ottla.server.principal import Principal

log = logging.getLogger(__name__)

FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UNREGISTER_CONTROLLER,
    }
)

# KafkaPrincipalSerde: two bytes of version before the message.
PRINCIPAL_VERSION = 0


class ForwardedPeer:
    """The client of a forwarded request, for the handlers of the request."""

    def __init__(self, carrier: Peer, principal: Principal, host: str) -> None:
        self._carrier = carrier
        self.principal = principal
        self.peer_host = host
        self.id = f"{carrier.id} for {host}"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._carrier, name)


def handle(
    components: ControllerComponents, routes: RouteTable, request: EnvelopeRequest, context: RequestContext
) -> Answer[EnvelopeResponse]:
    components.require_on_cluster(context, CLUSTER_ACTION)
    peer = ForwardedPeer(context.connection, _principal(request.request_principal), _host(request.client_host_address))
    data = request.request_data
    try:
        api_key, version, correlation_id, client_id, position = decode_request_header(data, 0, len(data))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Failed to parse the forwarded request: {error}") from None
    route = routes.get(api_key)
    if route is None or api_key not in FORWARDABLE:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"API {api_key} is not enabled or is not eligible for forwarding")
    codec = route.codec(version)
    if codec is None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{route.name} v{version} is not served here")
    try:
        # Spare bytes at the end are ignored, as in a request that is not forwarded: librdkafka's AlterUserScramCredentials
        # ends with one.
        inner, _ = codec.decode(data, position, len(data))
    except ProtocolError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Failed to parse the {route.name} request: {error}") from None
    inner_context = RequestContext(api_key, version, client_id, peer)
    answer = _answer(route, version, inner, inner_context)
    wrap = partial(_wrapped, route, codec, correlation_id, version, inner)
    return answer.then(wrap).otherwise(wrap) if isinstance(answer, Reply) else wrap(answer)


def _answer(route: Route, version: int, request: Any, context: RequestContext) -> Any:
    try:
        answer = route.handler(request, context)
    except KafkaError as error:
        return error
    except Exception:
        # Any error, as in server/network/dispatch.py: the client waits for an answer in the inner request's own form.
        log.exception("Handler of the forwarded %s v%d failed", route.name, version)
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert not inspect.iscoroutine(answer), f"{route.name} is not to be forwarded: its handler is a coroutine"
    return answer


def _wrapped(
    route: Route, codec: VersionCodec, correlation_id: int, version: int, request: Any, answer: Any
) -> EnvelopeResponse:
    """Wrap the response to an inner request, or its error, into an envelope."""
    if _says_not_controller(answer):
        return EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    if isinstance(answer, KafkaError):
        answer = error_reply(route.api_key, version, request, answer)
    pieces: list[Any] = []
    codec.encode(answer, pieces)
    head = codec.pack_head(0, correlation_id)[4:]  # without the frame's size
    return EnvelopeResponse(response_data=b"".join((head, *pieces)))


def _says_not_controller(answer: Any) -> bool:
    """Return True for NOT_CONTROLLER. DescribeQuorum is served by the quorum's leader, and has an error of its own for that, as in Kafka."""
    if isinstance(answer, DescribeQuorumResponse):
        partitions = [part for topic in answer.topics for part in topic.partitions]
        return any(part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER for part in partitions)
    return isinstance(answer, KafkaError) and answer.code == ErrorCode.NOT_CONTROLLER


def _principal(data: bytes | None) -> Principal:
    try:
        if data is None or int.from_bytes(data[:2], "big") != PRINCIPAL_VERSION:
            raise ValueError("unknown form")
        principal, _ = decoder(DefaultPrincipalData, PRINCIPAL_VERSION)(data, 2, len(data))
    except (ProtocolError, ValueError) as error:
        raise KafkaError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"Failed to deserialize client principal: {error}"
        ) from None
    return Principal(principal.type, principal.name, principal.token_authenticated)


def _host(address: bytes) -> str:
    try:
        return str(ipaddress.ip_address(bytes(address)))
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Failed to parse the client's address: neither 4 nor 16 bytes"
        ) from None
