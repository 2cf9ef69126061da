"""What to try when a broker cannot be talked to: a listener that expects TLS or a login only closes the connection."""

from __future__ import annotations

from ottla.protocol.errors import ErrorCode
from ottla.server.network.channel_protocol import (
    AnotherProtocol,
    ChannelClosed,
    HandshakeLost,
    RequestLost,
    SecurityRejected,
)
from ottla.server.network.peer_security import PeerSecurity

NOTHING_THERE = "is a broker running there?"
NOTHING_ANYWHERE = f"{NOTHING_THERE} `ottla dev` starts a cluster to try things on"


def connection_hint(fault: ChannelClosed, security: PeerSecurity, answered: bool) -> str:
    """Return the hint for a lost connection; `answered`: the broker has answered a request of this command before."""
    if isinstance(fault, SecurityRejected):
        return _rejected(str(fault))
    if isinstance(fault, AnotherProtocol):
        return "-b takes the address of a Kafka listener, not that of a proxy or of an admin listener"
    if answered or not isinstance(fault, (HandshakeLost, RequestLost)):
        return NOTHING_THERE
    closed = "it closed the connection at the first request, as a listener does that expects"
    if security.tls is None and security.login is None:
        return f"{closed} TLS or a login: --config FILE has security.protocol=SSL, SASL_SSL or SASL_PLAINTEXT and what belongs to it"
    if security.tls is None:
        return f"{closed} TLS: security.protocol=SASL_SSL"
    return f"{closed} a login: security.protocol=SASL_SSL with sasl.mechanism and sasl.jaas.config"


def _rejected(reason: str) -> str:
    if "certificate" in reason:
        return "ssl.truststore.location must have the authority that signed the broker's certificate, and -b a name that is in it"
    if "handshake failed" in reason:
        return "does this listener speak TLS? Without it: security.protocol=PLAINTEXT or SASL_PLAINTEXT"
    if ErrorCode.ILLEGAL_SASL_STATE.name in reason:
        return "this listener has no login: security.protocol=PLAINTEXT or SSL"
    return "sasl.mechanism and sasl.jaas.config must have the user's mechanism, name and password (`ottla user list`)"
