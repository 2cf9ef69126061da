"""GSSAPI (RFC 4752): Kerberos establishes a context between both sides; then they agree that their connection has no layer of it.

    client                      server
    context token           ->  a worker checks it with the key table
                            <-  context token, if the client wants the server's proof
    nothing                 ->
                            <-  wrapped: the offered layers (only "none"), the size of a message
    wrapped: the layer,
    a size, a name          ->  Authenticated: the principal of the context by sasl.kerberos.principal.to.local.rules

As in Kafka the name (authorization id) that the client sends is ignored. A first token that was recorded and is sent again does not
log in: the last one is wrapped with the session's key.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ottla.server.network.peer_security import LoginRejected
from ottla.server.sasl.exchange import Authenticated, SaslFailure, Slow, user
from ottla.server.sasl.kerberos import Accepting, Initiating, KerberosFailure
from ottla.server.sasl.kerberos_names import Rules, short_name

#: The bit of "no security layer". TLS encrypts, if the listener has it.
NO_LAYER = 1
#: RFC 4752 wants 0 if there is no layer. Kafka's clients were made for Java's 65,536.
MESSAGE_SIZE = 65_536
LAYERS_BYTES = 4


def offer() -> bytes:
    """The server's layers, and the longest message that it takes."""
    return bytes((NO_LAYER,)) + MESSAGE_SIZE.to_bytes(3, "big")


def check_choice(message: bytes) -> None:
    """Checks the client's answer. Raises ValueError."""
    if len(message) < LAYERS_BYTES:
        raise ValueError("the client's choice of a security layer is too short")
    if not message[0] & NO_LAYER:
        raise ValueError(f"Client selected unsupported protection: {message[0]}")


def choice(offered: bytes, principal: str) -> bytes:
    """Returns the answer to the server's layers. Raises ValueError."""
    if len(offered) != LAYERS_BYTES:
        raise ValueError("the server's offer of security layers is malformed")
    if not offered[0] & NO_LAYER:
        raise ValueError(f"the server asks for a security layer: {offered[0]}")
    return bytes((NO_LAYER, 0, 0, 0)) + principal.encode()


class GssapiExchange:
    """The server's side."""

    def __init__(self, begin: Callable[[], Accepting], rules: Rules) -> None:
        self._context = begin()
        self._rules = rules
        self._step: Callable[[bytes], bytes | Authenticated] = self._accept

    def evaluate(self, token: bytes) -> bytes | Authenticated | Slow:
        run = partial(self._run, self._step, token)
        # The library reads the key table and writes a replay cache: two files.
        return Slow(run) if self._step == self._accept else run()

    def _run(self, step: Callable[[bytes], bytes | Authenticated], token: bytes) -> bytes | Authenticated:
        try:
            return step(token)
        except (KerberosFailure, ValueError) as error:
            raise SaslFailure(str(error)) from None

    def _accept(self, token: bytes) -> bytes:
        answer = self._context.accept(token)
        if not self._context.established:
            return answer
        self._step = self._offer
        return answer or self._offer(b"")

    def _offer(self, token: bytes) -> bytes:
        if token:
            raise SaslFailure("the client sends data where it has to wait for the server's security layers")
        self._step = self._finish
        return self._context.wrap(offer())

    def _finish(self, token: bytes) -> Authenticated:
        check_choice(self._context.unwrap(token))
        name = short_name(self._rules, self._context.initiator())
        return Authenticated(user(name), None)


class GssapiClient:
    """The client's side."""

    def __init__(self, context: Initiating) -> None:
        self._context = context
        self._step: Callable[[bytes], bytes | None] = self._establish

    @property
    def is_slow(self) -> bool:
        return self._step == self._establish

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            return self._step(challenge)
        except (KerberosFailure, ValueError) as error:
            raise LoginRejected(str(error)) from None

    def _establish(self, challenge: bytes) -> bytes:
        token = self._context.step(challenge)
        if self._context.established:
            self._step = self._choose
        return token

    def _choose(self, challenge: bytes) -> bytes:
        answer = choice(self._context.unwrap(challenge), self._context.initiator())
        self._step = self._end
        return self._context.wrap(answer)

    def _end(self, challenge: bytes) -> None:
        return None
