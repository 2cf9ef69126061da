"""The hint of a lost connection names what the listener expects."""

from __future__ import annotations

from typing import cast

import pytest

from ottla.cli.hints import NOTHING_THERE, hint_of
from ottla.client.cluster import Lost, NoConnection
from ottla.server.network.peer_security import PLAINTEXT, ClientLogin, ClientTls, PeerSecurity
from ottla.server.network.wire import AnotherProtocol, ChannelClosed, HandshakeLost, RequestLost, SecurityRejected

TLS = cast(ClientTls, object())
LOGIN = cast(ClientLogin, object())
LOST = HandshakeLost("the connection to b:1 was closed")
REJECTED = "the login at b:1 failed: "


@pytest.mark.parametrize(
    ("fault", "security", "answered", "expected"),
    [
        (ChannelClosed("cannot connect to b:1: Connection refused"), PLAINTEXT, False, NOTHING_THERE),
        (LOST, PLAINTEXT, True, NOTHING_THERE),
        (RequestLost("the connection to b:1 was closed"), PeerSecurity(TLS, None), False, "expects a login"),
        (LOST, PLAINTEXT, False, "expects TLS or a login: --config FILE has security.protocol"),
        (LOST, PeerSecurity(None, LOGIN), False, "expects TLS: security.protocol=SASL_SSL"),
        (LOST, PeerSecurity(TLS, None), False, "expects a login: security.protocol=SASL_SSL"),
        (AnotherProtocol("b:1 answered with HTTP"), PLAINTEXT, False, "address of a Kafka listener"),
        (SecurityRejected("SSL handshake failed: the peer closed the connection"), PLAINTEXT, False, "speak TLS?"),
        (SecurityRejected("SSL handshake failed: the peer's certificate is"), PLAINTEXT, False, "ssl.truststore"),
        (SecurityRejected(f"{REJECTED}ILLEGAL_SASL_STATE, it"), PLAINTEXT, False, "this listener has no login"),
        (SecurityRejected(f"{REJECTED}invalid credentials"), PLAINTEXT, False, "name and password"),
    ],
)
def test_the_hint_names_the_cause(fault: ChannelClosed, security: PeerSecurity, answered: bool, expected: str) -> None:
    failure = NoConnection(str(fault), lost=[Lost(fault, security, answered)])
    assert expected in str(hint_of(failure))
