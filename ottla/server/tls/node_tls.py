"""The TLS of one node: that of its listeners, and that of its connections to other nodes.

Certificates can be replaced at run time.

A change comes from the dynamic configuration, or from a file with another time, size or permissions. The new context is made
and checked first. If that fails, the old one stays, a log line has the reason, and the change is tried again until it succeeds:
the cause may be invisible in the files, such as the permissions of their directory.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography import x509

from ottla.server.clock import TimerHandle
from ottla.server.config.key import ConfigError
from ottla.server.config.node_config import NodeConfig
from ottla.server.metrics import Sample
from ottla.server.network.handshakes import Handshakes
from ottla.server.network.peer_security import ClientTls
from ottla.server.principal import ANONYMOUS, Principal
from ottla.server.tls.contexts import Made, check_each_other, client_context, server_context
from ottla.server.tls.distinguished_names import mapped_name, read_rules, rfc2253
from ottla.server.tls.stores import KeyStore, TlsProperties, store_files
from ottla.server.world import World
from ottla.storage.errors import StorageFailure

log = logging.getLogger(__name__)

#: The time between two checks for changed files. Kafka checks them only when its configuration is altered.
LOOK_MS = 1_000
#: The time between two attempts of a change that fails: a key store with a password takes up to 30 ms.
RETRY_MS = 5_000
#: The time between two log lines about it.
REPEAT_MS = 600_000


class ListenerTls:
    """The server's side of one listener (`server.network.listener.ServerTls`)."""

    def __init__(self, context: ssl.SSLContext, handshakes: Handshakes, rules: str) -> None:
        self.handshakes = handshakes
        self.context = context
        self._rules = read_rules(rules)

    def principal(self, certificate: bytes | None) -> Principal:
        if certificate is None:
            return ANONYMOUS
        subject = x509.load_der_x509_certificate(certificate).subject.public_bytes()
        return Principal("User", mapped_name(self._rules, rfc2253(subject)))


@dataclass(slots=True)
class Side:
    """One side with a context: a listener, or the connections to peers. It has its properties and its files."""

    name: str
    listener: str
    holder: ListenerTls | ClientTls
    make: Callable[[TlsProperties], Made]
    keys: KeyStore | None
    files: dict[str, tuple[int, int | None]]
    #: Why the last change failed, when it is tried again, and when that is logged again.
    rejection: str | None = None
    retry_ms: int = 0
    repeat_ms: int = 0


class NodeTls:
    """The TLS contexts of a node's listeners and of its connections to other nodes."""

    def __init__(self, world: World, config: NodeConfig) -> None:
        self._world = world
        self._config = config
        self._handshakes = Handshakes(world.workers, world.spawn)
        self._sides: list[Side] = []
        self._timer: TimerHandle | None = None
        self._stopped = False
        config.watch(lambda config, changed: self._configured(changed))
        self._look_later()

    def properties(self, listener: str, config: NodeConfig | None = None) -> TlsProperties:
        """Return the properties of TLS. `config` replaces the present configuration."""
        config, name = config or self._config, listener.lower()
        return TlsProperties(
            config.values, self._world.files.read, config.of_listener(listener), f"listener.name.{name}."
        )

    def of_listener(self, listener: str, protocol: str) -> ListenerTls:
        """Return the server's side of a listener. Raises ConfigError."""

        def make(properties: TlsProperties) -> Made:
            if protocol == "SASL_SSL":
                # Clients authenticate by SASL, so a certificate is requested only if the listener's own properties ask for it (KIP-684).
                return server_context(properties, properties.own.get("ssl.client.auth", "none"))
            return server_context(properties, properties["ssl.client.auth"])

        properties, name = self.properties(listener), f"listener {listener}"
        made = make(properties)
        holder = ListenerTls(made.context, self._handshakes, self._config["ssl.principal.mapping.rules"])
        self._sides.append(Side(name, listener, holder, make, made.keys, self._file_states(properties)))
        self._note(name, made.keys)
        return holder

    def to_peers(self, listener: str) -> ClientTls:
        """Return the client's side of connections to other nodes by one of their listeners. Raises ConfigError."""
        properties, name = self.properties(listener), f"connections to {listener}"
        made = client_context(properties)
        holder = ClientTls(made.context)
        self._sides.append(Side(name, listener, holder, client_context, made.keys, self._file_states(properties)))
        return holder

    def check_peers(self) -> None:
        """Check that nodes with this configuration accept each other's certificates. Raises ConfigError if they do not."""
        for client in self._sides:
            for server in self._sides:
                if client.listener == server.listener and isinstance(client.holder, ClientTls) and server is not client:
                    why = check_each_other(server.holder.context, client.holder.context)
                    if why is not None:
                        why = f"nodes with these key and trust stores would refuse each other: {why}"
                        remedy = "the trust store must have the authority that signed the nodes' certificates"
                        raise self.properties(client.listener).error("ssl.truststore.location", why, remedy)

    def certificate_samples(self) -> list[Sample]:
        """Return for each certificate how many seconds it is still valid."""
        now_s = self._world.clock.wall_ms() / 1_000
        return [
            Sample({"of": side.name}, side.keys.chain[0].not_valid_after_utc.timestamp() - now_s)
            for side in self._sides
            if side.keys is not None
        ]

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # -- Changes -----------------------------------------------------------------------------------------------------

    def _file_states(self, properties: TlsProperties) -> dict[str, tuple[int, int | None]]:
        files = self._world.files
        states = {}
        for path in store_files(properties):
            try:
                states[path] = files.changed_ns(path), files.size(path)
            except (OSError, StorageFailure):
                states[path] = -1, None
        return states

    def _look_later(self) -> None:
        if not self._stopped:
            self._timer = self._world.clock.call_later(LOOK_MS, self._look)

    def _look(self) -> None:
        try:
            self._replace([side for side in self._sides if self._is_due(side)], "their files have changed")
        finally:
            self._look_later()

    def _is_due(self, side: Side) -> bool:
        if side.rejection is not None and self._world.clock.mono_ms() >= side.retry_ms:
            return True
        return side.files != self._file_states(self.properties(side.listener))

    def _configured(self, changed: frozenset[str]) -> None:
        def concerns(side: Side) -> bool:
            return any(name.startswith((f"listener.name.{side.listener.lower()}.ssl.", "ssl.")) for name in changed)

        self._replace([side for side in self._sides if concerns(side)], "their configuration has changed")

    def rejection(self, configs: Mapping[str, str]) -> str | None:
        """Return why `configs` could not take effect as the dynamic configuration of this node, or None."""
        config = self._config.with_dynamic(configs)
        for side in self._sides:
            properties = self.properties(side.listener, config)
            try:
                self._check_change(side, properties, side.make(properties))
            except ConfigError as error:
                return f"The certificates of {side.name} cannot be used: {error}"
        return None

    def _replace(self, sides: list[Side], reason: str) -> None:
        replaced: list[str] = []
        rejected: dict[str, list[str]] = {}
        for side in sides:
            properties = self.properties(side.listener)
            # The states of the files before they are loaded: if a file is replaced meanwhile, that counts as another change.
            side.files = self._file_states(properties)
            try:
                made = side.make(properties)
                self._check_change(side, properties, made)
            except ConfigError as error:
                why = f"{error} ({error.what_to_try})"
                if self._reject(side, why):
                    rejected.setdefault(why, []).append(side.name)
                continue
            side.rejection = None
            side.holder.context, side.keys = made.context, made.keys
            replaced.append(side.name)
            self._note(side.name, made.keys)
        for why, names in rejected.items():
            log.error("The certificates of %s stay as they are: %s", ", ".join(names), why)
        if replaced:
            log.info("The certificates of %s have been replaced: %s", ", ".join(replaced), reason)

    def _reject(self, side: Side, why: str) -> bool:
        """Reject the change, which is tried again later.

        Return whether to log the reason: if it is new, or was not logged for a while.
        """
        now_ms = self._world.clock.mono_ms()
        is_due = why != side.rejection or now_ms >= side.repeat_ms
        side.rejection, side.retry_ms = why, now_ms + RETRY_MS
        if is_due:
            side.repeat_ms = now_ms + REPEAT_MS
        return is_due

    def _check_change(self, side: Side, properties: TlsProperties, made: Made) -> None:
        if side.keys is not None and made.keys is None:
            why = "Cannot remove the SSL keystore from an existing listener for which a keystore was configured."
            raise properties.error("ssl.keystore.location", why, "restart the node with another configuration")
        if side.keys is not None and made.keys is not None:
            check_same_owner(properties, side.keys.chain[0], made.keys.chain[0])
        for other in self._sides:
            if other.listener == side.listener and type(other.holder) is not type(side.holder):
                server, client = other.holder.context, made.context
                if not isinstance(side.holder, ClientTls):
                    server, client = client, server
                rejection = check_each_other(server, client)
                if rejection is not None:
                    remedy = "replace the trust stores of all nodes first, with both authorities in them"
                    raise properties.error("ssl.keystore.location", f"other nodes would refuse it: {rejection}", remedy)

    def _note(self, name: str, keys: KeyStore | None) -> None:
        if keys is None:
            return
        certificate = keys.chain[0]
        left_days = (certificate.not_valid_after_utc.timestamp() * 1000 - self._world.clock.wall_ms()) / 86_400_000
        text = "The certificate of %s (%s) is valid until %s"
        level = logging.WARNING if left_days < 14 else logging.INFO
        log.log(level, text, name, rfc2253(certificate.subject.public_bytes()), certificate.not_valid_after_utc)


def check_same_owner(properties: TlsProperties, old: x509.Certificate, new: x509.Certificate) -> None:
    """Check that a new certificate has the old one's name and at least its alternative names, unless changes are allowed
    (KIP-978).
    """
    before, after = (rfc2253(each.subject.public_bytes()) for each in (old, new))
    if not properties["ssl.allow.dn.changes"] and before.lower() != after.lower():
        why = f"Keystore DistinguishedName does not match: existing={before}, new={after}"
        raise properties.error("ssl.keystore.location", why, "set ssl.allow.dn.changes=true if that is meant")
    lost = _alternative_names(old) - _alternative_names(new)
    if not properties["ssl.allow.san.changes"] and lost:
        why = f"Keystore SubjectAltNames do not match: {', '.join(sorted(lost))} would be lost"
        raise properties.error("ssl.keystore.location", why, "set ssl.allow.san.changes=true if that is meant")


def _alternative_names(certificate: x509.Certificate) -> set[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}
