"""GSSAPI (RFC 4752): Kerberos establishes a context between both sides; then they agree that their connection has no layer of it.

    client                      server
    context token           ->  a worker checks it with the key table
                            <-  context token, if the client wants the server's proof
    nothing                 ->
                            <-  wrapped: the offered layers (only "none"), the size of a message
    wrapped: the layer,
    a size, a name          ->  Authenticated: the principal of the context by sasl.kerberos.principal.to.local.rules

As in Kafka the name (authorization id) that the client sends is ignored. An attacker who sends a recorded first token again is
not logged in: the last token is wrapped with the session's key.

A node's configuration has the key table of a listener. The node's own login at other nodes uses it too:

listener.name.<listener>.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required
    useKeyTab=true storeKey=true keyTab="/etc/kafka.keytab" principal="kafka/host@REALM";
sasl.kerberos.service.name=kafka        or the option serviceName
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from ottla.server.config.key import ConfigError, Values
from ottla.server.installation import install
from ottla.server.network.peer_security import LoginRejected
from ottla.server.sasl.exchange import Authenticated, Mechanism, SaslFailure, Slow, user
from ottla.server.sasl.kerberos import (
    LOCAL_RULES,
    Accepting,
    Initiating,
    KerberosFailure,
    PrincipalKeys,
    Rules,
    acceptor,
    default_realm,
    library,
    read_rules,
    short_name,
)
from ottla.server.sasl.peer_login import Exchanges

#: The bit of "no security layer". TLS encrypts, if the listener has it.
NO_LAYER = 1
#: RFC 4752 requires 0 if there is no layer. Kafka's clients were made for Java's 65,536.
MESSAGE_SIZE = 65_536
LAYERS_BYTES = 4


def offer() -> bytes:
    """Return the server's offer: its security layers, and the length of the longest message that it accepts."""
    return bytes((NO_LAYER,)) + MESSAGE_SIZE.to_bytes(3, "big")


def check_choice(message: bytes) -> None:
    """Check the client's answer. Raises ValueError."""
    if len(message) < LAYERS_BYTES:
        raise ValueError("the client's choice of a security layer is too short")
    if not message[0] & NO_LAYER:
        raise ValueError(f"Client selected unsupported protection: {message[0]}")


def choice(offered: bytes, principal: str) -> bytes:
    """Return the client's answer to the server's layers. Raises ValueError."""
    if len(offered) != LAYERS_BYTES:
        raise ValueError("the server's offer of security layers is malformed")
    if not offered[0] & NO_LAYER:
        raise ValueError(f"the server asks for a security layer: {offered[0]}")
    return bytes((NO_LAYER, 0, 0, 0)) + principal.encode()


class GssapiExchange:
    """The server's side of a login by GSSAPI (RFC 4752)."""

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
    """The client's side of a login by GSSAPI (RFC 4752)."""

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


SERVICE = "sasl.kerberos.service.name"


def mechanism(name: str, options: Mapping[str, str], values: Values) -> Mechanism:
    """Return the server's side. `options` are those of the JAAS entry `name`.

    Raises:
        ConfigError: the library, the key table, its key or the service's name is missing, or a rule is malformed.
    """
    service_name(name, options, values)
    begin = _acceptor("sasl.enabled.mechanisms", name, keys_of(name, options))
    rules = read_rules(default_realm(), values[LOCAL_RULES])
    return partial(GssapiExchange, begin, rules)


def client(enabled_by: str, name: str, options: Mapping[str, str], values: Values) -> Exchanges:
    """Return the client's side.

    `enabled_by` is the property that selects the mechanism. Raises ConfigError, as `mechanism` does.
    """
    keys = keys_of(name, options)
    _acceptor(enabled_by, name, keys)  # The KDC is not contacted before the first login, because it may be down.
    return logins_of(keys, service_name(name, options, values))


def command(name: str, options: Mapping[str, str], values: Values) -> Exchanges:
    """Return the client's side for a command, which may also use the tickets of kinit (useTicketCache). Raises ConfigError."""
    if options.get("useTicketCache", "").lower() != "true":
        return client(name, name, options, values)
    try:
        library()
    except (ImportError, OSError) as error:
        raise _not_installed(name, error) from None
    return logins_of(None, service_name(name, options, values))


def logins_of(keys: PrincipalKeys | None, service: str) -> Exchanges:
    """Make this node's logins. Without keys they use the tickets of kinit."""

    async def exchange(host: str) -> GssapiClient:
        return GssapiClient(Initiating(keys, service, host))

    return exchange


def keys_of(name: str, options: Mapping[str, str]) -> PrincipalKeys:
    """Raise ConfigError if the JAAS entry `name` has no key table."""
    if options.get("useKeyTab", "").lower() != "true":
        raise _wrong(name, "has no useKeyTab=true, and a node has no password or ticket for Kerberos", "useKeyTab=true")
    for option, example in (("keyTab", "/etc/kafka.keytab"), ("principal", "kafka/host@REALM")):
        if not options.get(option):
            raise _wrong(name, f"has no {option}", f'{option}="{example}"')
    return PrincipalKeys(options["keyTab"], options["principal"])


def service_name(name: str, options: Mapping[str, str], values: Values) -> str:
    """Return the primary component of the nodes' principals. Raises ConfigError."""
    option, configured = options.get("serviceName"), values[SERVICE]
    if option is not None and configured is not None and option != configured:
        message = f"{name} has serviceName={option}, and {SERVICE} is {configured}"
        raise ConfigError(SERVICE, configured, "", "leave one of them out", message=message)
    found: str | None = option or configured
    if not found:
        message = "No serviceName defined in either JAAS or Kafka config"
        remedy = f"{SERVICE}=kafka, the part of the principal before the slash"
        raise ConfigError(SERVICE, None, "", remedy, message=message)
    return found


def _acceptor(enabled_by: str, name: str, keys: PrincipalKeys) -> Callable[[], Accepting]:
    try:
        return acceptor(keys)
    except (ImportError, OSError) as error:
        raise _not_installed(enabled_by, error) from None
    except KerberosFailure as failure:
        message = f"{name}: the key table {keys.keytab} cannot be used for {keys.principal}: {failure}"
        remedy = f"look at `klist -k {keys.keytab}`, which has to name the principal, and at the file's permissions"
        raise ConfigError(name, None, "", remedy, message=message) from None


def _not_installed(enabled_by: str, error: Exception) -> ConfigError:
    message = f"{enabled_by} has GSSAPI, for which the optional library is missing: {error}"
    return ConfigError(enabled_by, None, "", f"{install('gssapi')}, or leave GSSAPI out", message=message)


def _wrong(name: str, what: str, option: str) -> ConfigError:
    return ConfigError(name, None, "", f"add {option}", message=f"{name} {what}")
