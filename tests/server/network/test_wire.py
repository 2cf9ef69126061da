"""The client's side of a connection without I/O: responses of a peer, and the client's reactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.protocol.api import APIS, ApiKey
from ottla.protocol.compile import encode
from ottla.protocol.errors import ErrorCode, KafkaError, UnsupportedVersion
from ottla.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.protocol.messages.metadata import MetadataRequest
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeResponse
from ottla.server.network.peer_security import LoginRejected
from ottla.server.network.wire import (
    Ask,
    ChannelClosed,
    ClientWire,
    Steps,
    UnreadableResponse,
    Work,
    agree_on_versions,
)
from ottla.server.sasl.client_exchange import PlainClient, ScramClient, authenticate, choose_mechanism

METADATA = APIS[ApiKey.METADATA]
VERSIONS = APIS[ApiKey.API_VERSIONS]


@pytest.fixture
def wire() -> ClientWire[str]:
    return ClientWire("broker:9092")


def carried_out(steps: Steps[Any], answer: Callable[[Ask], object]) -> Any:
    """Return the result of steps that only send requests."""
    done: object = None
    while True:
        try:
            step = steps.send(done)
        except StopIteration as end:
            return end.value
        assert isinstance(step, Ask)
        done = answer(step)


def test_a_request_is_in_flight_until_its_response(wire: ClientWire[str]) -> None:
    for waiter in ("first", "second"):
        frame = b"".join(wire.request("me", MetadataRequest(topics=[]), METADATA, 1, waiter))
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert [wire.answered().waiter, wire.answered().waiter] == ["first", "second"]
    with pytest.raises(ChannelClosed, match="answered something that was not asked"):
        wire.answered()


def test_a_request_that_its_version_cannot_hold_is_not_in_flight(wire: ClientWire[str]) -> None:
    with pytest.raises(UnsupportedVersion):
        wire.request("me", MetadataRequest(topics=[], allow_auto_topic_creation=False), METADATA, 1, "waits")
    assert not wire.in_flight


@pytest.mark.parametrize(
    ("frame", "why"),
    [(b"\0\0\0\7" + b"\0" * 6, "correlation id 7 where 1 is due"), (b"\0\0\0\1\0", ""), (b"", "")],
    ids=["of another request", "cut", "empty"],
)
def test_what_is_no_response_to_the_request_is_refused(wire: ClientWire[str], frame: bytes, why: str) -> None:
    wire.sent(VERSIONS, 0, "waits")
    with pytest.raises(
        UnreadableResponse, match=f"broker:9092 answered ApiVersions v0 with what cannot be read: .*{why}"
    ):
        wire.response(wire.answered(), frame, 0, len(frame))


def test_an_old_peer_answers_the_newer_question_in_its_own_version(wire: ClientWire[str]) -> None:
    wire.sent(VERSIONS, 3, "waits")
    frame = b"\0\0\0\1" + encode(ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION), 0)
    assert wire.response(wire.answered(), frame, 0, len(frame)).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_versions_are_asked_for_again_in_the_oldest(wire: ClientWire[str]) -> None:
    asked: list[int] = []

    def old(ask: Ask) -> ApiVersionsResponse:
        asked.append(ask.version)
        if ask.version:
            return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        return ApiVersionsResponse(api_keys=[ApiVersion(ApiKey.METADATA, 0, 5)])

    carried_out(agree_on_versions(wire, "me", "1"), old)
    assert asked == [3, 0] and wire.versions == {ApiKey.METADATA: (0, 5)}
    assert [wire.agreed(METADATA), wire.agreed(METADATA, 2), wire.agreed(METADATA, None, 4)] == [5, 2, 4]
    for version in (6, -1):
        with pytest.raises(KafkaError, match="broker:9092 serves Metadata in versions 0 to 5, not"):
            wire.agreed(METADATA, version)


def test_a_peer_that_refuses_its_versions_is_none(wire: ClientWire[str]) -> None:
    refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    with pytest.raises(UnreadableResponse, match="refused ApiVersions with INVALID_REQUEST"):
        carried_out(agree_on_versions(wire, "me", "1"), lambda ask: refused)


def test_a_login_names_what_the_listener_enables() -> None:
    offered = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, ["PLAIN", "GSSAPI"])
    with pytest.raises(LoginRejected, match="UNSUPPORTED_SASL_MECHANISM, it enables PLAIN, GSSAPI"):
        carried_out(choose_mechanism("SCRAM-SHA-512"), lambda ask: offered)


def test_a_login_ends_with_the_lifetime_of_its_session_or_the_reason_of_the_server() -> None:
    sent: list[bytes] = []

    def accepts(ask: Ask) -> SaslAuthenticateResponse:
        assert isinstance(ask.request, SaslAuthenticateRequest) and ask.version == 2
        sent.append(ask.request.auth_bytes)
        return SaslAuthenticateResponse(session_lifetime_ms=60_000)

    assert carried_out(authenticate(PlainClient("alice", "secret"), 2), accepts) == 60_000
    assert sent == [b"\0alice\0secret"]
    refused = SaslAuthenticateResponse(error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="no such user")
    with pytest.raises(LoginRejected, match="no such user"):
        carried_out(authenticate(PlainClient("alice", "secret"), 2), lambda ask: refused)


def test_the_hash_of_a_password_is_work_for_a_worker() -> None:
    steps = authenticate(ScramClient("SCRAM-SHA-256", "alice", "secret", "nonce"), 2)
    assert isinstance(next(steps), Ask)
    step = steps.send(SaslAuthenticateResponse(auth_bytes=b"r=nonceserver,s=c2FsdA==,i=4096"))
    assert isinstance(step, Work)
    assert (step.run(step.argument) or b"").startswith(b"c=biws,r=nonceserver,p=")
